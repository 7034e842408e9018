"""The best way to serve a load on a fleet that meets goals: the search and its alternatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gnomon.errors import InputError, NoPlanError
from gnomon.planning.serving.infeasible import no_plan
from gnomon.planning.serving.mixed import MixedPlan, may_be_mixed, search_mixed
from gnomon.planning.serving.mixed_report import mixed_report
from gnomon.planning.serving.report import PlanBook, report
from gnomon.planning.serving.searched import Prepared, formats_of
from gnomon.planning.serving.sensitivity import with_sensitivity
from gnomon.planning.serving.space import left_out
from gnomon.planning.serving.task import PlanTask
from gnomon.planning.serving.weighed import plan_weighed
from gnomon.search import Candidate, highest_rate, search
from gnomon.search.arrivals import Arrivals
from gnomon.search.best_first import Progress
from gnomon.spec import Goal
from gnomon.spec.answers import PlanReport, PlanScore
from gnomon.spec.plan import AUTO, MIXED
from gnomon.units import format_rate


def plan_on(task: PlanTask, progress: Progress | None = None) -> PlanReport:
    """The best plan, and what it was weighed against; raises where no plan meets the goals."""
    if task.weigh:
        return plan_weighed(task, plan_on, progress)
    made = _prepared(task)
    if task.pools == MIXED:
        found = _mixed(made)
    elif task.pools == AUTO and len(task.fleet.pools) > 1 and may_be_mixed(task):
        found = _better(made, progress)
    else:
        found = _alike(made, progress)
    planned = {family.chip for family in made.plain}
    answer = replace(found.report, left_out=left_out(task.setup, task.fleet, made.formats, planned), asked=task.asked)
    return with_sensitivity(task, answer, found.best) if task.sensitivity else answer


def _prepared(task: PlanTask) -> Prepared:
    formats_of(task)
    _check_asked(task.arrivals, task.goals, task.asked_objective)
    _check_longest(task)
    return Prepared.of(task)


def best_on(task: PlanTask, progress: Progress | None = None) -> PlanScore:
    """The best plan of equal replicas alone, as `plan_on` has it; nothing is run to compare it with others."""
    made = _prepared(task)
    evaluator = made.alike()
    found = search(made.space(), evaluator, task.objective, task.job, progress=progress)
    if found.best is None:
        raise no_plan(task, found, evaluator)
    most = found.best.rate_per_s
    if task.objective.name != "throughput":
        most = highest_rate(found.best, evaluator, found.bounds[found.best.plan.family], task.job)
    return PlanBook(task, evaluator).score(found.best, most)


@dataclass(frozen=True, slots=True)
class _Found:
    report: PlanReport
    best: Candidate | MixedPlan


def _alike(made: Prepared, progress: Progress | None) -> _Found:
    """The best plan whose replicas of one role are equal."""
    task, evaluator = made.task, made.alike()
    space = made.space()
    found = search(space, evaluator, task.objective, task.job, progress=progress)
    if found.best is None:
        raise no_plan(task, found, evaluator)
    return _Found(report(task, found, evaluator, space), found.best.plan)


def _mixed(made: Prepared) -> _Found:
    """The best mixture of chips."""
    search = made.mixed()
    found = search_mixed(search)
    return _Found(mixed_report(search, found), found)


def _better(made: Prepared, progress: Progress | None) -> _Found:
    """Equal replicas or a mixture: what is cheaper, or holds the higher rate."""
    try:
        equal = _alike(made, progress)
    except NoPlanError as error:
        try:
            return _mixed(made)
        except NoPlanError:
            raise error from None
    try:
        mixture = _mixed(made)
    except NoPlanError:
        return equal
    alike, mixed = equal.report, mixture.report
    rated = made.task.objective.name == "throughput"
    one, other = ((-(each.best.max_rate_per_s or 0.0) if rated else each.best.usd_h) for each in (mixed, alike))
    best, beside = (mixed, alike) if one < other else (alike, mixed)
    joined = replace(
        best,
        plans_considered=alike.plans_considered + mixed.plans_considered,
        axes={**alike.axes, "pools": (*alike.axes.get("pools", ()), "mixtures of chips")},
        plans_fit=alike.plans_fit + mixed.plans_fit,
        plans_simulated=alike.plans_simulated + mixed.plans_simulated,
        alternative=_beside(best, beside, rated) if len(mixed.best.plan.pools) > 1 else best.alternative,
    )
    return _Found(joined, mixture.best if best is mixed else equal.best)


def _beside(best: PlanReport, other: PlanReport, rated: bool) -> dict[str, Any]:
    """The best plan of the kind that the chosen one is not of."""
    score = other.best
    why = f"{score.usd_h / best.best.usd_h - 1:.0%} more expensive"
    if rated:
        why = (
            f"sustains {format_rate(score.max_rate_per_s or 0)}, the best {format_rate(best.best.max_rate_per_s or 0)}"
        )
    return {"label": score.label, "usd_h": score.usd_h, "ttft_s": score.ttft_s, "tpot_s": score.tpot_s, "why": why}


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
