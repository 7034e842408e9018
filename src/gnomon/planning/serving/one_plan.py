"""One serving plan under one load, judged as a search judges its winner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gnomon.errors import DoesNotFitError, InputError
from gnomon.planning.serving.evaluator import MOST_REQUESTS, ServingEvaluator
from gnomon.planning.serving.pools import PoolsInput
from gnomon.planning.serving.replicas import Replicas
from gnomon.planning.serving.report import PlanBook
from gnomon.planning.serving.searched import LEAST_REQUESTS, MOST_TRACE
from gnomon.planning.serving.simulate_pools import simulate_pools
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Candidate, Level, PlanFamily
from gnomon.spec import Goal, Plan
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


def pools_under(given: PoolsInput, goals: Sequence[Goal]) -> dict[str, Any]:
    """The figures of a plan with several pools under its load, by the names that those of one pool have."""
    load = given.load
    if not load.rate_per_s and not load.trace:
        raise InputError("the load has no rate", where="load.rate_per_s", hint="Give --rate.")
    count = max(LEAST_REQUESTS, min(load.requests or MOST_TRACE, MOST_REQUESTS))
    found = simulate_pools(given if load.trace else replace(given, load=replace(load, requests=count)))
    times = {"ttft": found.ttft_s, "tpot": found.tpot_s, "e2e": found.e2e_s}
    met = all(times[goal.metric].get(goal.statistic, math.inf) <= goal.limit_s for goal in goals)
    usd_h = found.cost_usd / (found.makespan_s / 3600)
    return {
        "feasible": met and not found.overloaded,
        "usd_h": usd_h,
        "predicted": _offered(found, usd_h, load.rate_per_s),
    }


def _offered(found: ServingReport, usd_h: float, rate_per_s: float | None) -> dict[str, Any]:
    """Figures of pools; those for a million tokens at the load's own rate, which they sustain unless they are
    overloaded, and not over the time until the last of some requests has ended."""
    figures = found.to_dict()
    tokens_per_s = found.output_tokens_per_s
    if not found.overloaded and found.run is not None:
        requests = found.run.requests
        tokens_per_s = (rate_per_s or requests.rate_per_s) * float(requests.output_tokens.mean())
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
