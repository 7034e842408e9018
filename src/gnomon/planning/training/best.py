"""The best way to train a model on a cluster: every plan bounded at once, the promising ones timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.planning.training.axes import searched_axes
from gnomon.planning.training.lengths import lengths_inputs
from gnomon.planning.training.mixed import Mixture, check_kinds
from gnomon.planning.training.mixed_report import mixed_report, with_mixture
from gnomon.planning.training.objectives import OBJECTIVES, BestPlan, PlanQuery, Site, TrainingObjective
from gnomon.planning.training.out_of_reach import check_prices, no_plan
from gnomon.planning.training.report import report_step
from gnomon.planning.training.runs import Limits
from gnomon.planning.training.search import Search, search_of, step_of_row
from gnomon.planning.training.step import usable_bytes
from gnomon.search.quickest import Quickest, quickest
from gnomon.spec.answers import Resolved, TrainingPlanReport
from gnomon.spec.questions.objectives import PlanTrainingQuestion
from gnomon.techniques import asked

Progress = Callable[[int], None]

EQUAL = 5e-5
"""Steps whose times differ by less, relative to the faster, are called equal: less is printed as 0.00%."""


def plan_asked(
    question: PlanTrainingQuestion, sites: Sequence[Site], progress: Progress | None = None
) -> TrainingPlanReport:
    """The best plan of a question, and why the others lost. Errors name the fields of a plan."""
    objective = OBJECTIVES[question.goal]
    task = PlanQuery(
        sites=tuple(sites),
        load=question.load,
        limits=Limits(deadline_s=question.deadline_s or math.inf, budget_usd=question.budget_usd or math.inf),
        optimizer=question.optimizer,
        dtype=question.dtype,
        techniques=tuple(asked(question.techniques)),
        progress=progress,
    )
    check_prices(task, objective)
    outcome = objective.choose(task)
    if outcome is None:
        raise no_plan(task, objective)
    return _report(outcome, objective, task)


def plan_mixed(
    question: PlanTrainingQuestion, sites: Sequence[Site], progress: Progress | None = None
) -> TrainingPlanReport:
    """The best plan on two kinds of chips together, or on one of them where that is faster."""
    alone = plan_asked(question, sites, progress)
    first, second = (_plain(question, site) for site in sites)
    check_kinds(first, second)
    mixture, asked = Mixture((first, second)), "+".join(site.bound.pool.words for site in sites)
    found = mixture.quickest(progress)
    if found is None:
        return with_mixture(alone, asked, "no plan has replicas of both kinds")
    if found.value >= alone.best.step_time_s.value:
        return with_mixture(alone, asked, "slower together", found.value)
    return mixed_report(mixture, found, alone, asked)


def _plain(question: PlanTrainingQuestion, site: Site) -> Search:
    return search_of(site.bound, site.bound.load(question.load), question.optimizer, question.dtype)


def best_of(searches: Sequence[Search], progress: Progress | None) -> tuple[Search, Quickest]:
    """The fastest plan of all, the first of equals. A search whose best bound is above it is skipped."""
    best: tuple[Search, Quickest] | None = None
    for search in searches:
        if best is None or search.bounds_s.min() < best[1].value:
            found = quickest(search.bounds_s, search.step_s, progress, needs=search.preference)
            if best is None or found.value < best[1].value:
                best = search, found
    assert best is not None  # some search has a plan that fits
    return best


def usable(search: Search) -> NDArray[np.bool_]:
    """Plans that techniques leave in question, whether they fit or not."""
    return search.allowed if search.applied else np.ones(search.grid.size, bool)


def _report(outcome: BestPlan, objective: TrainingObjective, task: PlanQuery) -> TrainingPlanReport:
    """The best plan of all searches."""
    chosen, searches = outcome.chosen, outcome.searches
    search = chosen.best.search
    if objective.sets_tokens:
        search = replace(search, load=replace(search.load, tokens=outcome.value))
    best = report_step(step_of_row(search, chosen.best.row))
    considered, fit = (
        sum(int(rows.sum()) for rows in of) for of in (map(usable, searches), (one.fits for one in searches))
    )
    step_s = best.step_time_s.value
    return TrainingPlanReport(
        title=best.title,
        objective=_objective(outcome, objective, task),
        plans_considered=considered,
        plans_fit=fit,
        plans_timed=outcome.timed,
        axes=searched_axes(searches),
        best=best,
        label=chosen.best.label,
        bound_s=min(chosen.bound, step_s) if _by_step(outcome, objective) else _least_bound(searches, step_s),
        runner_up=_runner_up(outcome, objective),
        rejected={
            "does not fit in memory": considered - fit,
            objective.pruned: fit - outcome.timed,
            objective.timed: outcome.timed - 1,
        },
        shortage_bytes=_shortages(searches),
        command="",
        resolved=Resolved.of(search.model, search.pool),
        inputs={
            "model": search.bound.name,
            "cluster": ",".join(site.bound.pool.words for site in task.sites),
            "seq": search.load.seq,
            "global_batch": search.load.global_batch,
            "tokens": task.load.tokens,
            **lengths_inputs(search.load),
            "optimizer": search.optimizer,
            "dtype": search.dtype,
            **search.bound.precision,
            "engine": f"{search.engine.name}@{search.engine.version}",
            "techniques": list(search.techniques),
        }
        | search.pool.limit_inputs,
    )


def _objective(outcome: BestPlan, objective: TrainingObjective, task: PlanQuery) -> dict[str, Any]:
    limits = {"deadline_s": task.limits.deadline_s, "budget_usd": task.limits.budget_usd}
    return {
        "name": objective.name,
        "value": outcome.value,
        "unit": objective.unit if objective.unit != "s" or task.load.tokens else "s per step",
        "limits": {name: value for name, value in limits.items() if math.isfinite(value)},
        "compared": [dict(one) for one in outcome.tried],
    }


def _least_bound(searches: Sequence[Search], step_s: float) -> float:
    """No plan at all is faster than this."""
    return min(step_s, *(float(one.loose_bounds_s.min()) for one in searches if one.grid.size))


def _shortages(searches: Sequence[Search]) -> tuple[float, float]:
    """What plans that do not fit lack on their fullest rank, least and most."""
    found = []
    for one in searches:
        out = usable(one) & ~one.fits
        if not out.any():  # nor has the memory of plans been asked for that no technique applies to
            continue
        lacking = (one.peak_bytes - usable_bytes(one.pool, one.traits))[out]
        found += [float(edge(lacking[lacking > 0])) for edge in (np.min, np.max) if (lacking > 0).any()]
    return (min(found), max(found)) if found else (0.0, 0.0)


def _by_step(outcome: BestPlan, objective: TrainingObjective) -> bool:
    """Whether plans were compared by their step times alone."""
    return objective.by_step and outcome.site.failures is None


def _runner_up(outcome: BestPlan, objective: TrainingObjective) -> dict[str, object]:
    best, second = outcome.chosen.best, outcome.chosen.second
    if second is None or not math.isfinite(second.value):
        return {}
    more = second.value / best.value - 1
    return {
        "label": second.label,
        "step_time_s": second.value if _by_step(outcome, objective) else second.search.step_s(second.row),
        "why": objective.equal if more < EQUAL else objective.behind(more),
    }
