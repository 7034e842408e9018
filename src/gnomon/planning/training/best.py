"""The fastest way to train a model on a cluster: every plan bounded at once, the promising ones timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gnomon.planning.training.axes import searched_axes
from gnomon.planning.training.binding import TrainingBinding
from gnomon.planning.training.checks import check_chips
from gnomon.planning.training.infeasible import infeasible
from gnomon.planning.training.lengths import lengths_inputs
from gnomon.planning.training.report import report_step
from gnomon.planning.training.search import Search, joins, label, search_of
from gnomon.planning.training.step import TrainingStep, usable_bytes
from gnomon.search.quickest import Quickest, quickest
from gnomon.spec.answers import Resolved, TrainingPlanReport
from gnomon.spec.questions.training import PlanTrainingQuestion
from gnomon.techniques import TRAINING, applied, asked, search_space

AUTO = "auto"
Progress = Callable[[int], None]

EQUAL = 5e-5
"""Steps whose times differ by less, relative to the faster, are called equal: less is printed as 0.00%."""


def plan_asked(
    question: PlanTrainingQuestion, bound: TrainingBinding, progress: Progress | None = None
) -> TrainingPlanReport:
    """The best plan of a question, and why the others lost. Errors name the fields of a plan."""
    check_chips(bound.pool.count)
    plain = search_of(bound, bound.load(question.load), question.optimizer, question.dtype)
    searches = [replace(plain, techniques=words) for words in _sets(asked(question.techniques))]
    fitting = [search for search in searches if search.fits.any()]
    if not fitting:
        raise infeasible(searches[0].lean)
    timed: list[int] = []
    search, found = best_of(fitting, progress, timed)
    return _report(search, found, searches, sum(timed))


def _sets(techniques: Sequence[str]) -> list[tuple[str, ...]]:
    """What is searched one after the other: plans with the techniques, and for `auto` with one more each."""
    given = tuple(text for text in techniques if text != AUTO)
    applied(TRAINING, given)
    more = [(*given, text) for text in search_space()] if AUTO in techniques else []
    return [given, *(words for words in more if joins(words))]


def best_of(
    searches: Sequence[Search], progress: Progress | None, timed: list[int] | None = None
) -> tuple[Search, Quickest]:
    """The fastest plan of all, the first of equals. A search whose best bound is above it is skipped. `timed` gets how
    many plans of each were timed."""
    best: tuple[Search, Quickest] | None = None
    for search in searches:
        if best is None or search.bounds_s.min() < best[1].value:
            found = quickest(search.bounds_s, search.step_s, progress, needs=search.preference)
            if timed is not None:
                timed.append(found.evaluated)
            if best is None or found.value < best[1].value:
                best = search, found
    assert best is not None  # some search has a plan that fits
    return best


def usable(search: Search) -> NDArray[np.bool_]:
    """Plans that techniques leave in question, whether they fit or not."""
    return search.allowed if search.applied else np.ones(search.grid.size, bool)


def step_of_row(search: Search, row: int) -> TrainingStep:
    """One plan of a search, which has checked it, on the chips that it takes."""
    recipe, strategy = search.grid.recipe(row, search.optimizer), search.grid.strategy(row)
    bound = search.bound
    job = bound.job(replace(strategy, techniques=search.techniques), recipe, search.load, search.dtype)
    job = replace(job, pool=replace(bound.pool, count=strategy.ranks))
    return TrainingStep(bound.engine, job, bound.profile, search.applied)


def _report(search: Search, found: Quickest, searches: Sequence[Search], timed: int) -> TrainingPlanReport:
    """The best plan of all searches; `timed` plans of them were."""
    best = report_step(step_of_row(search, found.best))
    considered, fit = (
        sum(int(rows.sum()) for rows in of) for of in (map(usable, searches), (one.fits for one in searches))
    )
    return TrainingPlanReport(
        title=best.title,
        plans_considered=considered,
        plans_fit=fit,
        plans_timed=timed,
        axes=searched_axes(searches),
        best=best,
        label=label(search.grid, found.best, search.techniques),
        bound_s=min(found.bound, found.value),
        runner_up=_runner_up(search, found),
        rejected={
            "does not fit in memory": considered - fit,
            "cannot be quicker": fit - timed,
            "timed and slower": timed - 1,
        },
        shortage_bytes=_shortages(searches),
        command="",
        resolved=Resolved.of(search.model, search.pool),
        inputs={
            "model": search.bound.name,
            "cluster": search.pool.words,
            "seq": search.load.seq,
            "global_batch": search.load.global_batch,
            "tokens": search.load.tokens,
            **lengths_inputs(search.load),
            "optimizer": search.optimizer,
            "dtype": search.dtype,
            "engine": f"{search.engine.name}@{search.engine.version}",
            "techniques": list(search.techniques),
        }
        | search.pool.limit_inputs,
    )


def _shortages(searches: Sequence[Search]) -> tuple[float, float]:
    """What plans that do not fit lack on their fullest rank, least and most."""
    found = []
    for one in searches:
        lacking = (one.peak_bytes - usable_bytes(one.pool, one.traits))[usable(one) & ~one.fits]
        found += [float(edge(lacking[lacking > 0])) for edge in (np.min, np.max) if (lacking > 0).any()]
    return (min(found), max(found)) if found else (0.0, 0.0)


def _runner_up(search: Search, found: Quickest) -> dict[str, object]:
    if found.second is None or found.second_value is None:
        return {}
    more = found.second_value / found.value - 1
    return {
        "label": label(search.grid, found.second, search.techniques),
        "step_time_s": found.second_value,
        "why": "equal in time" if more < EQUAL else f"{more:.2%} slower",
    }
