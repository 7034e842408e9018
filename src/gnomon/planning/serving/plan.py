"""The best way to serve a load on a fleet that meets goals: the search and its alternatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnomon.errors import InputError, NoPlanError, named_as
from gnomon.graph.dtypes import width
from gnomon.planning.serving.disaggregated import PoolsEvaluator, disaggregated_space
from gnomon.planning.serving.evaluator import MOST_REQUESTS
from gnomon.planning.serving.infeasible import no_plan
from gnomon.planning.serving.mixed import MixedSearch, may_be_mixed
from gnomon.planning.serving.mixed_report import plan_mixed
from gnomon.planning.serving.replicas import Replicas
from gnomon.planning.serving.report import report
from gnomon.planning.serving.space import left_out, plan_space
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Level, PlanFamily, search
from gnomon.search.arrivals import Arrivals
from gnomon.search.best_first import Progress
from gnomon.spec import Goal, Model, ServingLoad, Strategy
from gnomon.spec.answers import PlanReport
from gnomon.spec.plan import AGGREGATED, AUTO, DISAGGREGATED, MIXED
from gnomon.techniques import WHERE, DeploymentDraft, served
from gnomon.units import format_rate

SEARCH_REQUESTS = 2_000
TRACE_REQUESTS = 4_000
"""Requests of a sample; those of a trace differ more among each other."""
FULL_REQUESTS = 5_000
"""Requests of a full load, which is also the first of ever longer runs that a winner is judged by; a full trace up to
`MOST_TRACE` of them."""
MOST_TRACE = 20_000
LEAST_REQUESTS = 400
"""Fewer requests do not reach a steady state."""


def plan_on(task: PlanTask, progress: Progress | None = None) -> PlanReport:
    """The best plan, and what it was weighed against; raises where no plan meets the goals."""
    fixed = _fixed_format(task)
    _check_asked(task.arrivals, task.goals, task.asked_objective)
    _check_longest(task)
    setup = task.setup
    tried = (fixed,) if fixed else task.dtypes or _formats(task.model)
    plain = plan_space(setup, task.fleet, tried)
    replicas = Replicas(setup, plain, task.arrivals.longest)
    if task.pools == MIXED:
        answer = _mixed(task, plain, replicas)
    elif task.pools == AUTO and len(task.fleet.pools) > 1 and may_be_mixed(task):
        answer = _better(task, plain, replicas, progress)
    else:
        answer = _alike(task, plain, replicas, progress)
    return replace(answer, left_out=left_out(setup, task.fleet, tried, {family.chip for family in plain}))


def _alike(task: PlanTask, plain: list[PlanFamily], replicas: Replicas, progress: Progress | None) -> PlanReport:
    """The best plan whose replicas of one role are equal."""
    counts = _counts(task.arrivals.load, task.requests)
    evaluator = PoolsEvaluator(replicas, task.arrivals, task.goals, counts, how=task.kv_transfer)
    found = search(_space(task, plain), evaluator, task.objective, task.job, progress=progress)
    if found.best is None:
        raise no_plan(task, found, evaluator)
    return report(task, found, evaluator)


def _mixed(task: PlanTask, plain: list[PlanFamily], replicas: Replicas) -> PlanReport:
    """The best mixture of chips; what each kind holds is found on twice a sample, the mixture is judged on the full
    load."""
    counts = _counts(task.arrivals.load, task.requests)
    counts[Level.FULL] = min(counts[Level.FULL], 2 * counts[Level.SEARCH])
    return plan_mixed(MixedSearch(task, plain, PoolsEvaluator(replicas, task.arrivals, task.goals, counts)))


def _better(task: PlanTask, plain: list[PlanFamily], replicas: Replicas, progress: Progress | None) -> PlanReport:
    """Equal replicas or a mixture: what is cheaper, or holds the higher rate."""
    try:
        alike = _alike(task, plain, replicas, progress)
    except NoPlanError as error:
        try:
            return _mixed(task, plain, replicas)
        except NoPlanError:
            raise error from None
    try:
        mixed = _mixed(task, plain, replicas)
    except NoPlanError:
        return alike
    rated = task.objective.name == "throughput"
    one, other = ((-(each.best.max_rate_per_s or 0.0) if rated else each.best.usd_h) for each in (mixed, alike))
    best, beside = (mixed, alike) if one < other else (alike, mixed)
    return replace(
        best,
        plans_considered=alike.plans_considered + mixed.plans_considered,
        plans_fit=alike.plans_fit + mixed.plans_fit,
        plans_simulated=alike.plans_simulated + mixed.plans_simulated,
        alternative=_beside(best, beside, rated) if len(mixed.best.plan.pools) > 1 else best.alternative,
    )


def _beside(best: PlanReport, other: PlanReport, rated: bool) -> dict[str, Any]:
    """The best plan of the kind that the chosen one is not of."""
    score = other.best
    why = f"{score.usd_h / best.best.usd_h - 1:.0%} more expensive"
    if rated:
        why = (
            f"sustains {format_rate(score.max_rate_per_s or 0)}, the best {format_rate(best.best.max_rate_per_s or 0)}"
        )
    return {"label": score.label, "usd_h": score.usd_h, "ttft_s": score.ttft_s, "tpot_s": score.tpot_s, "why": why}


def _space(task: PlanTask, plain: list[PlanFamily]) -> list[PlanFamily]:
    """The families of the kinds of plans that are asked for."""
    if task.pools == AGGREGATED:
        return plain
    apart = disaggregated_space(task.setup, task.fleet, plain)
    if not apart and task.pools == DISAGGREGATED:
        hint = "Give more chips, or --pools aggregated."
        raise InputError("prefill and decode replicas need two chips at least", where="--fleet", hint=hint)
    return apart if task.pools == DISAGGREGATED else [*plain, *apart]


def _check_asked(arrivals: Arrivals, goals: tuple[Goal, ...], objective: str | None) -> None:
    if any(goal.metric == "tpot" for goal in goals) and not (arrivals.whole.output_tokens > 1).any():
        raise InputError("requests of one token have no time between tokens", where="--slo", hint="Drop the tpot goal.")
    if objective not in ("", "cost", "throughput", None) and not arrivals.rate_per_s:
        raise InputError(
            "a load without a rate is planned for throughput", where="--objective", hint="Give --rate, or leave it out."
        )


def _check_longest(task: PlanTask) -> None:
    """Every request has room in the context: the model's, or what the settings leave of it."""
    arrivals, model, settings = task.arrivals, task.model, task.engine.settings
    own = task.setup.bound_engine.settings_for(context=1)
    named = [(settings[name], name) for name in own if isinstance(settings.get(name), int)]
    given, name = min(named, default=(model.max_context, ""))
    most = min(model.max_context, given)
    if arrivals.longest > most:
        limit = f"{name} {given:,}" if name and most == given else f"the {most:,} tokens of context of {model.name}"
        where = arrivals.load.trace or "--input, --output"
        raise InputError(f"a request of {arrivals.longest:,} tokens is longer than {limit}", where=where)


def _fixed_format(task: PlanTask) -> str | None:
    """The number format that techniques choose, where they do. Raises where one applies to no plan."""
    with named_as(WHERE, "--with"):
        chosen = served(task.techniques)
        chosen.check_simulated()
        named = task.dtypes or ()
        single = named[0] if len(named) == 1 else None
        each = [
            DeploymentDraft(model=task.model, pool=pool, strategy=Strategy(), dtype=single, kv_dtype=task.kv_dtype)
            for pool in task.fleet.pools
        ]
        found = {chosen.rewrite(draft).dtype for draft in each} - {single}
    if found and task.dtypes is not None:
        message = f"the techniques set the weight format to {', '.join(sorted(map(str, found)))}"
        raise InputError(message, where="--dtype", hint="Leave it out.")
    return found.pop() if len(found) == 1 else None


def _counts(load: ServingLoad, requests: int | None) -> dict[Level, int]:
    full = MOST_TRACE if load.trace else FULL_REQUESTS
    if requests is not None:
        full = max(LEAST_REQUESTS, min(requests, MOST_REQUESTS))
    sample = min(TRACE_REQUESTS if load.trace else SEARCH_REQUESTS, full)
    return {Level.SEARCH: sample, Level.VERDICT: sample, Level.TO_THE_END: full, Level.FULL: full, Level.SURE: full}


def _formats(model: Model) -> tuple[str, ...]:
    """A narrow checkpoint runs as it is stored; of a wide one eight bits are tried too."""
    return (model.dtype,) if width(model.dtype) < width("bf16") else ("bf16", "fp8")
