"""Prefill and decode replicas run one after the other: a decode replica sees no more of a prefill replica than when its
prompts are done. Equal to `simulate_system` of the two stages, without its events, for routers that look at nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnomon.sim.serving.check import check
from gnomon.sim.serving.replica import station_of
from gnomon.sim.serving.routers import ReplicaLoad, RoutedRequest, Router
from gnomon.sim.serving.run import ServingRun, StepTotals
from gnomon.sim.serving.system import ReplicaModel, SystemRun
from gnomon.spec.workload import Floats, Ints, Requests

Transfer = Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageRun:
    """The replicas of one stage under the requests that reach it."""

    requests: Requests
    """Of the whole load."""
    runs: tuple[ServingRun, ...]
    """Of the replicas that got a request."""
    served: tuple[Ints, ...]
    """Which requests each of them got, in the order of arrival there."""
    left_s: Floats
    """When each request has its last token of the stage, in the order of the load, before the front end."""

    @staticmethod
    def of_system(run: SystemRun) -> StagedRun:
        """Stages that were run together."""
        stages = [
            StageRun(requests=run.requests, runs=runs, served=served, left_s=run.finish_s)
            for runs, served in zip(run.stages, run.served, strict=True)
        ]
        return as_one(stages)

    def spread(self, name: str) -> Floats:
        """A column of the runs in the order of the load."""
        found = np.zeros(len(self.requests))
        for run, at in zip(self.runs, self.served, strict=True):
            found[at] = getattr(run, name)
        return found


def assigned(router: Router, count: int, replicas: Sequence[ReplicaModel]) -> Ints:
    """The replica that each of so many requests goes to, by a router that looks at nothing."""
    if len(replicas) == 1:
        return np.zeros(count, np.int64)
    loads = [ReplicaLoad(replica.weight) for replica in replicas]
    nothing = RoutedRequest(0, 0, ())
    return np.fromiter((router.choose(nothing, loads) for _ in range(count)), np.int64, count)


def prefill(requests: Requests, replicas: Sequence[ReplicaModel], router: Router) -> StageRun:
    """Every prompt up to its first token."""
    first = replace(requests, output_tokens=np.ones(len(requests), np.int64), follows=None, think_s=None)
    to = assigned(router, len(requests), replicas)
    shares = [(replica, np.flatnonzero(to == place)) for place, replica in enumerate(replicas)]
    return _stage(requests, [(replica, at, first.take(at)) for replica, at in shares if at.size])


def decode(
    before: StageRun, replicas: Sequence[ReplicaModel], router: Router, transfer_s: Transfer | None = None
) -> StageRun:
    """The answers, once the keys and values of each prompt have been sent; transfers to one replica follow one
    another."""
    requests = before.requests
    order = np.lexsort((np.arange(len(requests)), before.left_s))
    to = assigned(router, len(requests), replicas)
    shares = []
    for place, replica in enumerate(replicas):
        at = order[to == place]
        if at.size:
            share = replace(requests, follows=None, think_s=None).take(at)
            there = _sent(before.left_s[at], share.input_tokens, transfer_s)
            shares.append((replica, at, replace(share, arrival_s=there)))
    return _stage(requests, shares, loaded=True)


def sent_s(prompts: Ints, transfer_s: Transfer) -> Floats:
    """What the transfer of each prompt takes by itself."""
    lengths, places = np.unique(prompts, return_inverse=True)
    return np.array([transfer_s(int(length)) for length in lengths])[places]


def _sent(left_s: Floats, prompts: Ints, transfer_s: Transfer | None) -> Floats:
    """When the keys and values of prompts that end at some times are at the one replica that they all go to."""
    if transfer_s is None:
        return left_s
    there, busy = [], -np.inf
    for left, takes in zip(left_s.tolist(), sent_s(prompts, transfer_s).tolist(), strict=True):
        busy = max(left, busy) + takes
        there.append(busy)
    return np.array(there)


def _stage(requests: Requests, shares: Sequence[tuple[ReplicaModel, Ints, Requests]], loaded: bool = False) -> StageRun:
    left_s = np.zeros(len(requests))
    runs = []
    for model, at, share in shares:
        check(share, model.limits)
        station = station_of(share, model.cost, model.limits, curves=model.curves)
        if loaded:
            station.load_all()
        station.run()
        left_s[at] = [station.finish_s(place) for place in range(len(share))]
        runs.append(station.result(share))
    return StageRun(
        requests=requests, runs=tuple(runs), served=tuple(at for _, at, _ in shares), left_s=left_s
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagedRun(ServingRun):
    """Stages as their clients see them."""

    stages: tuple[StageRun, ...]


def as_one(stages: Sequence[StageRun]) -> StagedRun:
    """All stages as their clients see them: first and last token of the last one, sums over all replicas."""
    head, tail = stages[0], stages[-1]
    runs = [run for stage in stages for run in stage.runs]
    busy_s = sum(run.busy_s for run in runs)
    return StagedRun(
        stages=tuple(stages),
        requests=head.requests,
        first_token_s=tail.spread("first_token_s"),
        finish_s=tail.spread("finish_s"),
        scheduled_s=head.spread("scheduled_s"),
        cached_tokens=head.spread("cached_tokens").astype(np.int64),
        preemptions=sum(run.preemptions for run in runs),
        steps=sum(run.steps for run in runs),
        busy_s=busy_s,
        peak_kv_blocks=max(run.peak_kv_blocks for run in tail.runs),
        peak_sequences=max(run.peak_sequences for run in tail.runs),
        peak_step_tokens=max(run.peak_step_tokens for run in tail.runs),
        totals=StepTotals.sum([run.totals for run in runs]),
        dynamic_j=sum(run.dynamic_j for run in runs),
        clock_slowdown=sum(run.clock_slowdown * run.busy_s for run in runs) / busy_s if busy_s else 1.0,
    )
