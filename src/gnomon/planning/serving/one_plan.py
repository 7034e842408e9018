"""One serving plan under one load, judged as a search judges its winner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnomon.errors import DoesNotFitError, InputError
from gnomon.planning.serving.arriving import arriving
from gnomon.planning.serving.evaluator import (
    GROWN,
    MOST_REQUESTS,
    ServingEvaluator,
    falls_behind,
    statistics,
)
from gnomon.planning.serving.pools import PooledSystem, PoolsInput, bound_pools
from gnomon.planning.serving.replicas import Replicas
from gnomon.planning.serving.report import PlanBook
from gnomon.planning.serving.searched import LEAST_REQUESTS, MOST_TRACE
from gnomon.planning.serving.seen import steady_times
from gnomon.planning.serving.simulate import check_lengths
from gnomon.planning.serving.simulate_pools import as_run, pools_report
from gnomon.planning.serving.task import PlanTask
from gnomon.planning.steps.energy import power_use
from gnomon.search import Candidate, Level, PlanFamily
from gnomon.search.arrivals import Arrivals
from gnomon.search.judge import is_settled
from gnomon.sim.serving import ServingRun
from gnomon.sim.serving.system import SystemRun
from gnomon.spec import Goal, Plan, Requests
from gnomon.spec.answers import PlanScore, ServingReport

UNSIMULATED = ("cp",)
"""Degrees of replicas that the simulator does not run."""


def plan_under(plan: Plan, task: PlanTask) -> PlanScore:
    """The figures of a plan under a task's load and goals, with intervals."""
    for name in UNSIMULATED:
        if getattr(plan.strategy, name) > 1:
            message = f"replicas with {name} {getattr(plan.strategy, name)} are not simulated under a load"
            raise InputError(message, where=f"strategy.{name}", hint="`gnomon predict` prices their steps.")
    arrivals = task.arrivals
    if not arrivals.rate_per_s:
        raise InputError("the load has no rate", where="load.rate_per_s", hint="Give --rate.")
    candidate = candidate_of(plan, task)
    replicas = Replicas(task.setup, [candidate.family], arrivals.longest)
    if replicas.find(candidate.family) is None:
        raise DoesNotFitError(f"a replica has no room for a request of {arrivals.longest:,} tokens")
    count = max(LEAST_REQUESTS, min(arrivals.load.requests or MOST_TRACE, MOST_REQUESTS))
    evaluator = ServingEvaluator(replicas, arrivals, task.goals, dict.fromkeys(Level, count))
    return PlanBook(task, evaluator).score(evaluator.evaluate(candidate, arrivals.rate_per_s, Level.TO_THE_END))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsRun:
    """A load, or a stretch of it, on pools."""

    system: PooledSystem
    run: SystemRun
    stream: Requests

    @property
    def judged(self) -> tuple[ServingRun, ...]:
        """The replicas' runs; of two stages what clients see of both."""
        return self.run.stages[0] if len(self.run.stages) == 1 else (as_run(self.system, self.run),)

    def power_w(self, rate_per_s: float) -> float:
        """Watts of all replicas at a rate, as in the middle of a run."""
        found = 0.0
        for pool, runs in self.system.runs_of(self.run):
            uses = [power_use(pool.deployment, one) for one in runs]
            found += sum(use.mean_w(rate_per_s * use.busy_s / len(self.stream)) for use in uses)
            waiting_w = pool.deployment.strategy.ranks * pool.deployment.profile.power["active_w"]
            found += (pool.spec.replicas - len(runs)) * waiting_w
        return found


def pools_under(given: PoolsInput, goals: Sequence[Goal]) -> dict[str, Any]:
    """The figures of a plan with several pools under its load, by the names that those of one pool have: over the same
    part of a run, and judged in the same way."""
    arrivals = arriving(Arrivals(given.load, given.router, given.trace), given.techniques, given.case)
    rate = arrivals.rate_per_s
    if not rate:
        raise InputError("the load has no rate", where="load.rate_per_s", hint="Give --rate.")
    served = _settled(given, arrivals)
    last = served[-1]
    found = pools_report(given, last.system, last.run, as_run(last.system, last.run), last.stream)
    judged = [run for one in served for run in one.judged]
    steady = {metric: statistics(values) for metric, values in steady_times(judged).items()}
    grows = found.overloaded or any(map(falls_behind, judged))
    met = all(steady[goal.metric][goal.statistic] <= goal.limit_s for goal in goals)
    usd_h = sum(pool.usd_h for pool in last.system.pools)
    tokens_per_s = found.output_tokens_per_s if grows else rate * float(arrivals.whole.output_tokens.mean())
    return {
        "feasible": met and not grows and all(map(_has_settled, judged)),
        "usd_h": usd_h,
        "predicted": _offered(_steady(found, steady, last.power_w(rate)), usd_h, tokens_per_s, grows),
    }


def _settled(given: PoolsInput, arrivals: Arrivals) -> list[PoolsRun]:
    """Runs of growing length, until they have settled, or a queue grows, or the load has no more requests."""
    count = max(LEAST_REQUESTS, min(given.load.requests or MOST_TRACE, MOST_REQUESTS))
    served: list[PoolsRun] = []
    span = 0.0
    while True:
        routed = arrivals.of(1, count, span).at_rate(arrivals.rate_per_s)
        if routed.requests <= sum(len(one.stream) for one in served):
            return served
        served = [_served(given, arrivals, share) for share in routed.shares]
        judged = [run for one in served for run in one.judged]
        grows = routed.requests >= GROWN and any(map(falls_behind, judged))
        if grows or routed.requests >= MOST_REQUESTS or all(map(_has_settled, judged)):
            return served
        count = min(2 * routed.requests, MOST_REQUESTS)
        span = float(count)


def _served(given: PoolsInput, arrivals: Arrivals, stream: Requests) -> PoolsRun:
    system = bound_pools(given, stream)
    for pool in system.pools:
        check_lengths(
            stream, given.load.trace, None if arrivals.asks else given.trace, pool.spec.replica, pool.limits.max_context
        )
    return PoolsRun(system=system, run=system.run(stream), stream=stream)


def _has_settled(run: ServingRun) -> bool:
    return is_settled(run.requests.arrival_s, run.finish_s)


def _steady(found: ServingReport, times: Mapping[str, Mapping[str, float]], power_w: float) -> ServingReport:
    """A report with the times and watts of the steady part; bands keep their relative widths."""
    new = {f"{metric}_s": dict(by) for metric, by in times.items()} | {"power_w": {"mean": power_w}}
    bands = dict(found.bands)
    for name, by in new.items():
        whole = {"mean": found.power_w} if name == "power_w" else getattr(found, name)
        bands[name] = {
            each: (low * by[each] / whole[each], high * by[each] / whole[each]) if whole.get(each) else (low, high)
            for each, (low, high) in bands[name].items()
        }
    return replace(found, ttft_s=new["ttft_s"], tpot_s=new["tpot_s"], e2e_s=new["e2e_s"], power_w=power_w, bands=bands)


def _offered(found: ServingReport, usd_h: float, tokens_per_s: float, grows: bool) -> dict[str, Any]:
    """Figures of pools; those for a million tokens at the load's own rate, which they sustain unless a queue grows, and
    not over the time until the last of some requests has ended."""
    figures = found.to_dict()
    if not grows:
        rates = ("output_tokens_per_s", "usd_per_mtok")
        figures["bands"] = {name: band for name, band in figures.get("bands", {}).items() if name not in rates}
    return figures | {
        "output_tokens_per_s": tokens_per_s,
        "usd_per_mtok": usd_h / (tokens_per_s * 3600 / 1e6),
        "wh_per_mtok": found.power_w / tokens_per_s / 3600 * 1e6,
    }


def candidate_of(plan: Plan, task: PlanTask) -> Candidate:
    """The plan as a search knows it, the only one of its space."""
    (pool,) = task.fleet.pools
    family = PlanFamily(
        chip=pool.chip.name,
        tp=plan.strategy.tp,
        ep=plan.strategy.ep,
        dp=plan.strategy.dp,
        pp=plan.strategy.pp,
        dtype=plan.dtype,
        dtype_rank=0,
        settings=(),
        usd_h=plan.ranks * pool.chip.price_usd_h,
        most=plan.replicas,
        order=0,
    )
    return Candidate(family=family, replicas=plan.replicas)
