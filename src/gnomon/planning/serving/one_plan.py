"""One serving plan under one load, judged as a search judges its winner."""

from __future__ import annotations

from gnomon.errors import DoesNotFitError, InputError
from gnomon.planning.serving.evaluator import MOST_REQUESTS, ServingEvaluator
from gnomon.planning.serving.replicas import Replicas
from gnomon.planning.serving.report import PlanBook
from gnomon.planning.serving.searched import LEAST_REQUESTS, MOST_TRACE
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Candidate, Level, PlanFamily
from gnomon.spec import Plan
from gnomon.spec.answers import PlanScore

UNSIMULATED = ("pp", "cp", "dp")
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


def candidate_of(plan: Plan, task: PlanTask) -> Candidate:
    """The plan as a search knows it, the only one of its space."""
    (pool,) = task.fleet.pools
    family = PlanFamily(
        chip=pool.chip.name,
        tp=plan.strategy.tp,
        ep=plan.strategy.ep,
        dtype=plan.dtype,
        dtype_rank=0,
        settings=(),
        usd_h=plan.ranks * pool.chip.price_usd_h,
        most=plan.replicas,
        order=0,
    )
    return Candidate(family=family, replicas=plan.replicas)
