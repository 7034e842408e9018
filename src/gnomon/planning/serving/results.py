"""What a run says beyond its totals: times by statistic, goals and goodput, distributions, series over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gnomon.engines import Deployment
from gnomon.sim.serving import RunLog, ServingRun
from gnomon.sim.serving.gaps import GapHistogram, token_gaps
from gnomon.sim.serving.series import RunSeries, bin_edges, run_series, step_shares
from gnomon.spec import Goal
from gnomon.spec.answers.serving import GoalResult
from gnomon.spec.workload import QUANTILES, Floats

RARE, RARE_SHARE = "p99.9", 0.999
RARE_REQUESTS = 10_000
"""Values from which on p99.9 is given: ten of them lie beyond it."""
POINTS = 101
"""Of a distribution: at 0%, 1% … 100%."""
TIMES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultOptions:
    """What is asked of a run."""

    goals: tuple[Goal, ...] = ()
    series: bool = False
    """Whether series over time and distributions are part of the answer."""


def results(run: ServingRun, log: RunLog, deployment: Deployment, asked: ResultOptions) -> dict[str, Any]:
    """Fields of a `ServingReport`."""
    gaps = token_gaps(log)
    found: dict[str, Any] = {f"{metric}_s": _times(run, metric) for metric in (*TIMES, "queue")}
    found |= {"itl_s": _gap_times(gaps), "step_shares": step_shares(run.makespan_s, log)}
    if asked.goals:
        found |= _goodput(run, asked.goals, found)
    if asked.series:
        found["series"] = _columns(run_series(run, log, bin_edges(run)), deployment)
        found["distributions"] = _distributions(run, gaps)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaResult:
    """One of several replicas: what it runs on, its place among the stages, and its run and log where it got a
    request."""

    deployment: Deployment
    first: bool
    """Whether it is of the first stage, where clients arrive."""
    last: bool
    """Whether its tokens are those that clients get."""
    run: ServingRun | None
    log: RunLog


def pool_results(run: ServingRun, replicas: Sequence[ReplicaResult], asked: ResultOptions) -> dict[str, Any]:
    """The same of several replicas, whose clients see `run`: gaps and tokens are those of the last stage, running and
    waiting requests, blocks and watts are sums over all replicas, shares of the time are means over their chips."""
    served = [one for one in replicas if one.run is not None]
    gaps = GapHistogram()
    for one in served:
        if one.last:
            gaps.include(token_gaps(one.log))
    found: dict[str, Any] = {f"{metric}_s": _times(run, metric) for metric in (*TIMES, "queue")}
    found |= {"itl_s": _gap_times(gaps), "step_shares": _pool_shares(run.makespan_s, replicas)}
    if asked.goals:
        found |= _goodput(run, asked.goals, found)
    if asked.series:
        found["series"] = _pool_columns(run, replicas)
        found["distributions"] = _distributions(run, gaps)
    return found


def _pool_shares(makespan_s: float, replicas: Sequence[ReplicaResult]) -> dict[str, float]:
    ranks = np.array([one.deployment.strategy.ranks for one in replicas], float)
    shares = [step_shares(makespan_s, one.log) if one.run is not None else {} for one in replicas]
    found = {
        name: float(np.average([each.get(name, 0.0) for each in shares], weights=ranks))
        for name in ("prefill", "decode")
    }
    return found | {"idle": max(1.0 - sum(found.values()), 0.0)}


def _pool_columns(run: ServingRun, replicas: Sequence[ReplicaResult]) -> dict[str, tuple[float | None, ...]]:
    edges = bin_edges(run)
    width, bins = float(edges[1] - edges[0]), edges.size - 1
    ranks = sum(one.deployment.strategy.ranks for one in replicas)
    sums = {name: np.zeros(bins) for name in ("running", "waiting", "kv_blocks", "output_tokens_per_s")}
    shares = {name: np.zeros(bins) for name in ("prefill_share", "decode_share")}
    power, busy, slowed = np.zeros(bins), np.zeros(bins), np.zeros(bins)
    for one in replicas:
        of, active_w = one.deployment.strategy.ranks, one.deployment.profile.power["active_w"]
        power += of * active_w
        if one.run is None:
            continue
        each = run_series(one.run, one.log, edges)
        power += of * each.dynamic_w
        for name, total in sums.items():
            if one.last or name != "output_tokens_per_s":
                total += getattr(each, name)
        for name, total in shares.items():
            total += getattr(each, name) * of / ranks
        worked = (each.prefill_share + each.decode_share) * of
        known = ~np.isnan(each.clock)
        busy[known] += worked[known]
        slowed[known] += worked[known] / each.clock[known]
    first = np.clip(np.searchsorted(edges, run.scheduled_s, side="right") - 1, 0, bins - 1)
    cached, prompt = (np.bincount(first, some, bins) for some in (run.cached_tokens, run.requests.input_tokens))
    with np.errstate(invalid="ignore", divide="ignore"):
        named = (
            sums
            | shares
            | {
                "start_s": edges[:-1],
                "arrivals_per_s": np.histogram(run.requests.arrival_s, edges)[0] / width,
                "cache_hit_rate": np.where(prompt > 0, cached / prompt, np.nan),
                "clock": np.where(slowed > 0, busy / slowed, np.nan),
                "power_w": power,
                "bin_s": np.array([width]),
            }
        )
    return {name: tuple(_number(value) for value in values) for name, values in named.items()}


def _times(run: ServingRun, metric: str) -> dict[str, float]:
    known = run.statistics(metric)
    values: Floats = getattr(run, f"{metric}_s")
    values = values[~np.isnan(values)]
    rare = {RARE: float(np.quantile(values, RARE_SHARE))} if values.size >= RARE_REQUESTS else {}
    return known | rare


def _gap_times(gaps: GapHistogram) -> dict[str, float]:
    shares = QUANTILES | ({RARE: RARE_SHARE} if gaps.count >= RARE_REQUESTS else {})
    cuts = gaps.quantiles(np.array(list(shares.values())))
    return {"mean": gaps.mean} | dict(zip(shares, cuts.tolist(), strict=True))


def _goodput(run: ServingRun, goals: Sequence[Goal], times: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Whether each goal is met, and the requests that stay within the limits of all of them. A request of one token
    has no TPOT, and so none that is too long."""
    good = np.ones(len(run.requests), bool)
    checked = []
    for goal in goals:
        values: Floats = getattr(run, f"{goal.metric}_s")
        good &= ~(values > goal.limit_s)
        value = times[f"{goal.metric}_s"][goal.statistic]
        checked.append(GoalResult(goal=goal.name, limit_s=goal.limit_s, value_s=value, met=not value > goal.limit_s))
    share = float(good.mean())
    return {
        "goals": tuple(checked),
        "goodput_share": share,
        "goodput_rps": share * len(run.requests) / run.makespan_s,
    }


def _columns(series: RunSeries, deployment: Deployment) -> dict[str, tuple[float | None, ...]]:
    """With the watts of all chips; null where there is nothing to take a mean of."""
    named = {one.name: getattr(series, one.name) for one in fields(series)}
    chip_w, active_w = named.pop("dynamic_w"), deployment.profile.power["active_w"]
    named |= {"power_w": deployment.strategy.ranks * (chip_w + active_w), "bin_s": [series.bin_s]}
    return {name: tuple(_number(value) for value in values) for name, values in named.items()}


def _distributions(run: ServingRun, gaps: GapHistogram) -> dict[str, tuple[float, ...]]:
    """Times at 0%, 1% … 100% of requests, and of gaps between tokens."""
    shares = np.linspace(0.0, 1.0, POINTS)
    found = {}
    for metric in TIMES:
        values: Floats = getattr(run, f"{metric}_s")
        values = values[~np.isnan(values)]
        if values.size:
            found[f"{metric}_s"] = tuple(np.quantile(values, shares).tolist())
    if gaps.count:
        found["itl_s"] = tuple(gaps.quantiles(shares).tolist())
    return found


def _number(value: float) -> float | None:
    return None if value != value else float(value)
