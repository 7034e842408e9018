"""One serving plan under one load, judged as a search judges its winner."""

from __future__ import annotations

from gnomon.errors import DoesNotFitError, InputError
from gnomon.load import model as load_model
from gnomon.load.plan import plan_pool
from gnomon.planning.deploy import Binding
from gnomon.planning.serving.evaluator import MOST_REQUESTS, ServingEvaluator
from gnomon.planning.serving.replicas import Replicas, Setup
from gnomon.planning.serving.report import PlanBook, Question
from gnomon.search import Candidate, Level, PlanFamily, SearchJob, objective
from gnomon.search.arrivals import Arrivals
from gnomon.spec import Cluster, Plan, Pool, ServingLoad
from gnomon.spec.answers import PlanScore

LEAST_REQUESTS, MOST_TRACE = 400, 20_000
"""Requests that a replica is simulated with at least, and of a whole trace at most; a run goes on until it settles."""
UNSIMULATED = ("pp", "cp", "dp")
"""Degrees of replicas that the simulator does not run."""


def plan_under(plan: Plan, load: ServingLoad) -> PlanScore:
    """The figures of a plan under a load, with intervals. Goals are those of the plan."""
    for name in UNSIMULATED:
        if getattr(plan.strategy, name) > 1:
            message = f"replicas with {name} {getattr(plan.strategy, name)} are not simulated under a load"
            raise InputError(message, where=f"strategy.{name}", hint="`gnomon predict` prices their steps.")
    model, pool, arrivals = load_model(plan.model), plan_pool(plan), Arrivals(load, plan.router)
    if not arrivals.rate_per_s:
        raise InputError("the load has no rate", where="load.rate_per_s", hint="Give --rate.")
    setup = Setup(
        model=model,
        bindings={pool.chip.name: Binding.of(pool, plan.engine.label)},
        engine=plan.engine,
        kv_dtype=plan.kv_dtype,
        techniques=plan.strategy.techniques,
    )
    candidate = _candidate(plan, pool)
    replicas = Replicas(setup, [candidate.family], arrivals.longest)
    if replicas.find(candidate.family) is None:
        raise DoesNotFitError(f"a replica has no room for a request of {arrivals.longest:,} tokens")
    question = Question(
        model=model,
        reference=plan.model,
        fleet=Cluster(pools=(pool,)),
        kv_dtype=plan.kv_dtype,
        load=load,
        router=plan.router,
        job=SearchJob(
            goals=plan.goals,
            rate_per_s=arrivals.rate_per_s,
            output_tokens=float(arrivals.whole.output_tokens.mean()),
        ),
        objective=objective("cost"),
        techniques=plan.strategy.techniques,
        settings=plan.engine.settings,
    )
    count = max(LEAST_REQUESTS, min(load.requests or MOST_TRACE, MOST_REQUESTS))
    evaluator = ServingEvaluator(replicas, arrivals, plan.goals, dict.fromkeys(Level, count))
    return PlanBook(question, evaluator).score(evaluator.evaluate(candidate, arrivals.rate_per_s, Level.TO_THE_END))


def _candidate(plan: Plan, pool: Pool) -> Candidate:
    """The plan as a search knows it, the only one of its space."""
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
