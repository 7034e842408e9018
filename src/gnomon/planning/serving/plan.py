"""The best way to serve a load on a fleet within goals: the search, and what it was weighed against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gnomon.errors import InputError, named_as
from gnomon.graph.dtypes import width
from gnomon.planning.deploy import Binding
from gnomon.planning.serving.evaluator import MOST_REQUESTS, ServingEvaluator
from gnomon.planning.serving.infeasible import no_plan
from gnomon.planning.serving.replicas import CONTEXT, Replicas, Setup
from gnomon.planning.serving.report import PlanTask, report
from gnomon.planning.serving.space import left_out, plan_space
from gnomon.search import Level, Objective, SearchJob, search
from gnomon.search import objective as named_objective
from gnomon.search.arrivals import Arrivals
from gnomon.search.best_first import Progress
from gnomon.spec import Cluster, EngineChoice, Goal, Model, ServingLoad, Strategy
from gnomon.spec.answers import PlanReport
from gnomon.techniques import WHERE, DeploymentDraft, served

SEARCH_REQUESTS = 2_000
TRACE_REQUESTS = 4_000
"""Requests of a sample; those of a trace differ more among each other."""
FULL_REQUESTS = 5_000
"""Requests of a full load, which is also the first of ever longer runs that a winner is judged by; a full trace up to
`MOST_TRACE` of them."""
MOST_TRACE = 20_000
LEAST_REQUESTS = 400
"""Fewer tell nothing of a steady state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlanInput:
    """What a question for a serving plan was resolved to."""

    model: Model
    reference: str
    """By which the model can be read again."""
    fleet: Cluster
    bindings: Mapping[str, Binding]
    """By the chip's name."""
    engine: EngineChoice
    arrivals: Arrivals
    goals: tuple[Goal, ...]
    objective: str | None
    """As it was asked for."""
    dtypes: tuple[str, ...] | None
    kv_dtype: str
    techniques: tuple[str, ...]
    requests: int | None
    """How many requests were asked for, where that was said."""

    @property
    def aim(self) -> Objective:
        """A load without a rate is planned for throughput."""
        return named_objective((self.objective or "cost") if self.arrivals.rate_per_s else "throughput")

    def task(self) -> PlanTask:
        output_tokens = float(self.arrivals.whole.output_tokens.mean())
        return PlanTask(
            model=self.model,
            reference=self.reference,
            fleet=self.fleet,
            bindings=self.bindings,
            kv_dtype=self.kv_dtype,
            load=self.arrivals.load,
            router=self.arrivals.router,
            job=SearchJob(goals=self.goals, rate_per_s=self.arrivals.rate_per_s, output_tokens=output_tokens),
            objective=self.aim,
            techniques=self.techniques,
            settings=self.engine.settings,
            requests=self.requests,
        )

    def setup(self) -> Setup:
        return Setup(
            model=self.model, bindings=self.bindings, engine=self.engine, kv_dtype=self.kv_dtype,
            techniques=self.techniques,
        )  # fmt: skip


def plan_on(given: ServingPlanInput, progress: Progress | None = None) -> PlanReport:
    """The best plan, and what it was weighed against; raises where no plan meets the goals."""
    fixed = _fixed_format(given)
    _check_asked(given.arrivals, given.goals, given.objective)
    _check_longest(given.arrivals, given.model, given.engine)
    setup, task = given.setup(), given.task()
    tried = (fixed,) if fixed else given.dtypes or _formats(given.model)
    space = plan_space(setup, given.fleet, tried)
    replicas, counts = Replicas(setup, space, given.arrivals.longest), _counts(given.arrivals.load, given.requests)
    evaluator = ServingEvaluator(replicas, given.arrivals, given.goals, counts)
    found = search(space, evaluator, task.objective, task.job, progress=progress)
    if found.best is None:
        raise no_plan(task, found, evaluator)
    answer = report(task, found, evaluator)
    return replace(answer, left_out=left_out(setup, given.fleet, tried, {family.chip for family in space}))


def _check_asked(arrivals: Arrivals, goals: tuple[Goal, ...], objective: str | None) -> None:
    if any(goal.metric == "tpot" for goal in goals) and not (arrivals.whole.output_tokens > 1).any():
        raise InputError("requests of one token have no time between tokens", where="--slo", hint="Drop the tpot goal.")
    if objective not in ("", "cost", "throughput", None) and not arrivals.rate_per_s:
        raise InputError(
            "a load without a rate is planned for throughput", where="--objective", hint="Give --rate, or leave it out."
        )


def _check_longest(arrivals: Arrivals, model: Model, engine: EngineChoice) -> None:
    """Every request has room in the context: the model's, or what the settings leave of it."""
    told = engine.settings.get(CONTEXT)
    most = min(model.max_context, told) if isinstance(told, int) else model.max_context
    if arrivals.longest > most:
        limit = f"{CONTEXT} {told:,}" if most == told else f"the {most:,} tokens {model.name} was made for"
        where = arrivals.load.trace or "--input, --output"
        raise InputError(f"a request of {arrivals.longest:,} tokens is longer than {limit}", where=where)


def _fixed_format(given: ServingPlanInput) -> str | None:
    """The number format that techniques choose, where they do. Raises where one applies to no plan."""
    with named_as(WHERE, "--with"):
        ideas = served(given.techniques)
        ideas.check_simulated()
        named = given.dtypes or ()
        told = named[0] if len(named) == 1 else None
        each = [
            DeploymentDraft(model=given.model, pool=pool, strategy=Strategy(), dtype=told, kv_dtype=given.kv_dtype)
            for pool in given.fleet.pools
        ]
        found = {ideas.settled(draft).dtype for draft in each} - {told}
    if found and given.dtypes is not None:
        message = f"the techniques choose weights in {', '.join(sorted(map(str, found)))}"
        raise InputError(message, where="--dtype", hint="Leave it out.")
    return found.pop() if len(found) == 1 else None


def _counts(load: ServingLoad, requests: int | None) -> dict[Level, int]:
    full = MOST_TRACE if load.trace else FULL_REQUESTS
    if requests is not None:
        full = max(LEAST_REQUESTS, min(requests, MOST_REQUESTS))
    sample = min(TRACE_REQUESTS if load.trace else SEARCH_REQUESTS, full)
    return {Level.SEARCH: sample, Level.TO_THE_END: full, Level.FULL: full, Level.SURE: full}


def _formats(model: Model) -> tuple[str, ...]:
    """A narrow checkpoint runs as it is stored; of a wide one eight bits are tried too."""
    return (model.dtype,) if width(model.dtype) < width("bf16") else ("bf16", "fp8")
