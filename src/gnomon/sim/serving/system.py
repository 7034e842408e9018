"""Replicas joined to one deployment: routers in front of them, transfers between them, clients that wait for answers.

A stage is a set of replicas with one router. Aggregated serving has one stage. With prefill and decode apart there are
two: a replica of the first makes the keys and values of a prompt, which are sent to one of the second when its first
token is there. Replicas may differ in chip, degrees and settings.

Requests arrive at their times; or each client of a closed loop sends its next one when it has the whole answer to the
last; or the turns of a session follow one another, with time to think in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.sim.serving.check import check
from gnomon.sim.serving.curve import Curves
from gnomon.sim.serving.log import RunLog
from gnomon.sim.serving.replica import station_of
from gnomon.sim.serving.routers import ReplicaLoad, RoutedRequest, Router
from gnomon.sim.serving.run import ServingRun
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Floats, Ints, Prefixes, Requests, by_adapter

DONE, ARRIVE = 0, 1
"""Kinds of events; at one moment an answer comes before an arrival."""
Event = tuple[float, int, int, int, int, int]
"""Time, kind, request, stage; of an answer also the replica, and the request's number there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaModel:
    """What one replica is simulated by."""

    cost: StepCost
    limits: ServingLimits
    curves: Curves = field(default_factory=dict)
    """Sums of the cost's decode curves; replicas on the same cost may share them."""
    weight: float = 1.0
    """How much faster it is than others, for routers that go by weights."""
    log: RunLog | None = None
    """Where its steps are kept, for one replica alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingStage:
    """Replicas behind one router."""

    replicas: Sequence[ReplicaModel]
    router: Router
    transfer_s: Callable[[int], float] | None = None
    """Of a stage that decodes: from the first token of a prompt of so many tokens until its keys and values are here.
    Transfers to one replica follow one another."""
    makes_first: bool = True
    """Whether the client's first token comes from here, as under vLLM, which computes the last token of the prompt
    again; else from the stage before, as under SGLang."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SystemRun:
    """Times in seconds as the clients see them; arrays in request order."""

    requests: Requests
    """With the arrivals that came of it."""
    first_token_s: Floats
    finish_s: Floats
    scheduled_s: Floats
    cached_tokens: Ints
    stages: tuple[tuple[ServingRun, ...], ...]
    """Of each stage, the runs of the replicas that got a request."""
    numbers: tuple[tuple[int, ...], ...]
    """Which replicas these are."""
    served: tuple[tuple[Ints, ...], ...]
    """Which requests each of them got, in the order of arrival there."""


def simulate_system(requests: Requests, stages: Sequence[ServingStage], *, clients: int | None = None) -> SystemRun:
    """Serve the requests. With `clients`, never more than so many at once, in their order, whatever their arrivals."""
    for stage in stages:
        for replica in stage.replicas:
            check(requests, replica.limits)
    system = _System(requests, stages, clients)
    system.run()
    return system.result()


class _Replica:
    """A station, and what was sent to it."""

    __slots__ = ("apart", "arrivals_s", "busy_until", "load", "sent", "station")

    def __init__(self, model: ReplicaModel, trees: _Trees, feeds_back: bool) -> None:
        none = np.zeros(0, np.int64)
        self.apart = model.limits.adapter_slots > 0
        """Whether only requests of one adapter share."""
        nothing = Requests(np.zeros(0), none, none, prefixes=trees.empty(self.apart))
        self.station = station_of(nothing, model.cost, model.limits, curves=model.curves)
        self.station.watch(model.log)
        self.station.ended, self.station.feeds_back = [], feeds_back
        self.load = ReplicaLoad(model.weight)
        self.sent: list[int] = []
        """The requests, in the order of its own numbers."""
        self.arrivals_s: list[float] = []
        self.busy_until = -inf
        """When the last transfer to it ends."""


class _Trees:
    """What requests share, with and without adapters."""

    def __init__(self, requests: Requests) -> None:
        self._trees = [requests.prefixes, requests.prefixes]
        if requests.prefixes is not None and requests.adapter is not None:
            self._trees[True] = by_adapter(requests.prefixes, requests.adapter)
        self.nodes = [[-1] * len(requests) if tree is None else tree.node.tolist() for tree in self._trees]
        """Of each request."""

    def empty(self, apart: bool) -> Prefixes | None:
        """The tree, and no request."""
        tree = self._trees[apart]
        return None if tree is None else tree.take(np.zeros(0, np.int64))


class _System:
    """What happens when, over all stations."""

    def __init__(self, requests: Requests, stages: Sequence[ServingStage], clients: int | None) -> None:
        self._requests, self._stages, self._clients = requests, stages, clients
        count, self._trees = len(requests), _Trees(requests)
        self._feeds_back = clients is not None or requests.follows is not None
        self._replicas = [
            [_Replica(model, self._trees, self._feeds_back) for model in stage.replicas] for stage in stages
        ]
        self._prompt, self._output = requests.input_tokens.tolist(), requests.output_tokens.tolist()
        self._adapter = None if requests.adapter is None else requests.adapter.tolist()
        self._priority = None if requests.priority is None else requests.priority.tolist()
        self._events: list[Event] = []
        self._finished: list[tuple[float, int, int]] = []
        """Of requests whose end is sure and that routers still count: time, stage and replica."""
        self._arrival_s: list[float] = requests.arrival_s.tolist()
        self._next_of: dict[int, int] = {}
        self._released = count
        first = [(at, ARRIVE, i, 0, 0, 0) for i, at in enumerate(self._arrival_s)]
        if clients is not None:
            self._released = min(clients, count)
            first = [(0.0, ARRIVE, i, 0, 0, 0) for i in range(self._released)]
        elif requests.follows is not None:
            follows = requests.follows.tolist()
            self._next_of = {before: i for i, before in enumerate(follows) if before >= 0}
            first = [event for event, before in zip(first, follows, strict=True) if before < 0]
        self._coming = first[::-1]
        """Arrivals that are known from the start, the next one last."""
        self._load_aware = any(stage.router.load_aware for stage in stages)

    def run(self) -> None:
        events, coming = self._events, self._coming
        while True:
            now = min(events[0][0] if events else inf, coming[-1][0] if coming else inf)
            if not self._advance(now):
                continue  # something earlier came up
            if now == inf:
                break
            event = heappop(events) if events and (not coming or events[0] < coming[-1]) else coming.pop()
            if event[1] == DONE:
                self._answered(event)
            else:
                self._arrive(event[0], event[2], event[3])

    def _advance(self, until: float) -> bool:
        """Run all stations up to a moment, stage by stage; false where that causes an earlier event."""
        for stage, replicas in enumerate(self._replicas):
            for number, replica in enumerate(replicas):
                station = replica.station
                while True:
                    station.run(until)
                    if not station.ended:
                        break
                    self._note_ends(stage, number, replica)
                    if self._feeds_back and self._events and self._events[0][0] < until:
                        return False
            if self._events and self._events[0][0] < until:
                return False
        return True

    def _note_ends(self, stage: int, number: int, replica: _Replica) -> None:
        """Requests whose last token at a replica is sure: they go on, or their client has the answer."""
        station = replica.station
        ended, station.ended = station.ended or [], []
        for local in ended:
            request, end = replica.sent[local], station.finish_s(local)
            if self._load_aware:
                heappush(self._finished, (end, stage, number))
            if stage + 1 < len(self._stages) and self._goes_on(request, stage):
                heappush(self._events, (end, ARRIVE, request, stage + 1, 0, 0))
            elif self._feeds_back:
                heappush(self._events, (end, DONE, request, stage, number, local))

    def _goes_on(self, request: int, stage: int) -> bool:
        return self._stages[stage + 1].makes_first or self._output[request] > 1

    def _arrive(self, now: float, request: int, stage: int) -> None:
        """A request reaches the router of a stage."""
        replicas, router = self._replicas[stage], self._stages[stage].router
        if self._load_aware:
            self._count_finished(now)
        if router.load_aware:
            for replica in replicas:
                replica.load.kv_share = replica.station.kv_share
        loads = [replica.load for replica in replicas]
        chosen = 0 if len(replicas) == 1 else router.choose(self._seen(request), loads)
        replica = replicas[chosen]
        prompt, output, loaded = self._work_of(request, stage)
        if stage:
            now = self._transferred(now, prompt, stage, replica)
        else:
            self._arrival_s[request] = now
        replica.station.add(
            now,
            prompt,
            output,
            self._trees.nodes[replica.apart][request],
            loaded,
            -1 if self._adapter is None else self._adapter[request],
            0 if self._priority is None else self._priority[request],
        )
        replica.sent.append(request)
        replica.arrivals_s.append(now)
        replica.load.unfinished += 1

    def _work_of(self, request: int, stage: int) -> tuple[int, int, bool]:
        """Prompt and output of a request at a stage, and whether its keys and values come from the one before."""
        prompt, output = self._prompt[request], self._output[request]
        if stage == 0:
            return prompt, output if len(self._stages) == 1 else 1, False
        return (prompt, output, True) if self._stages[stage].makes_first else (prompt + 1, output - 1, True)

    def _transferred(self, now: float, prompt: int, stage: int, replica: _Replica) -> float:
        """When the keys and values of a prompt are at a replica; transfers follow one another, and so do arrivals."""
        seconds = self._stages[stage].transfer_s
        replica.busy_until = max(now, replica.busy_until) + (seconds(prompt) if seconds else 0.0)
        return replica.busy_until

    def _count_finished(self, now: float) -> None:
        while self._finished and self._finished[0][0] <= now:
            _, stage, number = heappop(self._finished)
            self._replicas[stage][number].load.unfinished -= 1

    def _seen(self, request: int) -> RoutedRequest:
        path, prefixes, node = [], self._requests.prefixes, self._trees.nodes[False][request]
        while prefixes is not None and node >= 0:
            path.append((node, int(prefixes.end[node])))
            node = int(prefixes.parent[node])
        return RoutedRequest(request, self._prompt[request], path, self._output[request])

    def _answered(self, event: Event) -> None:
        """A client has the whole answer, or has it a little later, as the front end is busy: it may send another."""
        at, _, request, stage, number, local = event
        there = self._replicas[stage][number].station.client_s(local)
        if there > at:
            heappush(self._events, (there, *event[1:]))
        elif self._clients is not None:
            if self._released < len(self._requests):
                heappush(self._events, (at, ARRIVE, self._released, 0, 0, 0))
                self._released += 1
        elif request in self._next_of:
            follower, think_s = self._next_of[request], self._requests.think_s
            think = 0.0 if think_s is None else float(think_s[follower])
            heappush(self._events, (at + think, ARRIVE, follower, 0, 0, 0))

    def result(self) -> SystemRun:
        count = len(self._requests)
        first_s, finish_s, scheduled_s = np.zeros(count), np.zeros(count), np.zeros(count)
        cached = np.zeros(count, np.int64)
        stages: list[tuple[ServingRun, ...]] = []
        for stage, replicas in enumerate(self._replicas):
            runs = []
            for replica in replicas:
                if not replica.sent:
                    continue
                at = np.array(replica.sent)
                run = replace(replica.station.result(self._share(at, stage, replica.arrivals_s)), order=at)
                if stage == 0 or self._stages[stage].makes_first:
                    first_s[at] = run.first_token_s
                if stage == 0:
                    scheduled_s[at], cached[at] = run.scheduled_s, run.cached_tokens
                finish_s[at] = run.finish_s
                runs.append(run)
            stages.append(tuple(runs))
        return SystemRun(
            requests=replace(self._requests, arrival_s=np.array(self._arrival_s)),
            first_token_s=first_s,
            finish_s=finish_s,
            scheduled_s=scheduled_s,
            cached_tokens=cached,
            stages=tuple(stages),
            served=tuple(
                tuple(np.array(replica.sent) for replica in replicas if replica.sent) for replicas in self._replicas
            ),
            numbers=tuple(
                tuple(number for number, replica in enumerate(replicas) if replica.sent) for replicas in self._replicas
            ),
        )

    def _share(self, at: Ints, stage: int, arrivals_s: list[float]) -> Requests:
        """The requests of a replica as it saw them."""
        prompt, output, _ = zip(*(self._work_of(request, stage) for request in at.tolist()), strict=True)
        share = replace(self._requests, follows=None, think_s=None).take(at)
        return replace(
            share, arrival_s=np.array(arrivals_s), input_tokens=np.array(prompt), output_tokens=np.array(output)
        )
