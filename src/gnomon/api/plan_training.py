"""The quickest way to train a model on a cluster: every plan bounded at once, the hopeful ones timed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnomon.api.simulate_training import (
    as_flags,
    check_chips,
    load_of,
    own_target,
    report_step,
    step_of,
    training_plan,
)
from gnomon.engines import training_engine
from gnomon.errors import GnomonError, InputError
from gnomon.export import target
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.recipe import OPTIMIZERS
from gnomon.planning.training.infeasible import nowhere
from gnomon.planning.training.search import Search, joins, label, search_of
from gnomon.planning.training.step import usable_bytes
from gnomon.search.quickest import Quickest, quickest
from gnomon.spec import Plan
from gnomon.spec.answers import Resolved, TrainingPlanReport, TrainingReport
from gnomon.techniques import applied, asked, searched_words

AUTO = "auto"


def plan_training(
    model: str | Path,
    *,
    cluster: str,
    seq: int,
    global_batch: int,
    tokens: float | None = None,
    optimizer: str = "adamw",
    dtype: str | None = None,
    engine: str = "megatron",
    techniques: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> TrainingPlanReport:
    """The plan with the shortest step, over all degrees, micro-batches, schedules and ways to save memory.

    `techniques` go into every plan; `auto` among them asks for the best of each that a search tries, and none. Plans
    may leave chips idle where the degrees do not divide them. Exact: every plan that was not timed has a lower bound
    at or above the best time. Of plans as quick as each other the one that leaves more memory free wins.
    """
    load = load_of(seq, global_batch, tokens)
    if optimizer not in OPTIMIZERS:
        raise InputError(
            f"unknown optimizer '{optimizer}'", where="--optimizer", hint=f"Known: {', '.join(OPTIMIZERS)}."
        )
    pool = parse_pool(cluster, "--cluster")
    check_chips(pool.count, "--cluster")
    try:
        plain = search_of(load_model(model), pool, load, training_engine(engine), optimizer, dtype)
        searches = [replace(plain, techniques=words) for words in _sets(asked(techniques))]
        fitting = [search for search in searches if search.fits.any()]
        if not fitting:
            raise nowhere(searches[0].lean)
        search, found = best_of(fitting, progress)
        return _report(str(model), search, found)
    except GnomonError as error:
        error.where, error.hint = as_flags(error.where), as_flags(error.hint)
        raise


def _sets(techniques: Sequence[str]) -> list[tuple[str, ...]]:
    """What is searched one after the other: plans with the techniques, and for `auto` with one more each."""
    given = tuple(text for text in techniques if text != AUTO)
    applied(given)
    more = [(*given, text) for text in searched_words()] if AUTO in techniques else []
    return [given, *(words for words in more if joins(words))]


def best_of(searches: Sequence[Search], progress: Callable[[int], None] | None) -> tuple[Search, Quickest]:
    """The quickest plan of all, the first of equals. A search whose best bound is above it has nothing to say."""
    best: tuple[Search, Quickest] | None = None
    for search in searches:
        if best is None or search.bounds_s.min() < best[1].value:
            found = quickest(search.bounds_s, search.step_s, progress, needs=search.peak_bytes)
            if best is None or found.value < best[1].value:
                best = search, found
    assert best is not None  # some search has a plan that fits
    return best


def _report(model: str, search: Search, found: Quickest) -> TrainingPlanReport:
    best = step_report(model, search, found.best)
    usable = search.allowed if search.applied else np.ones(search.grid.size, bool)
    lacking = (search.peak_bytes - usable_bytes(search.pool, search.traits))[usable & ~search.fits]
    lacking, considered, fit = lacking[lacking > 0], int(usable.sum()), int(search.fits.sum())
    return TrainingPlanReport(
        title=best.title,
        plans_considered=considered,
        plans_fit=fit,
        plans_timed=found.evaluated,
        best=best,
        label=label(search.grid, found.best, search.techniques),
        bound_s=min(found.bound, found.value),
        runner_up=_runner_up(search, found),
        rejected={
            "does not fit in memory": considered - fit,
            "cannot be quicker": fit - found.evaluated,
            "timed and slower": found.evaluated - 1,
        },
        shortage_bytes=(float(lacking.min()), float(lacking.max())) if lacking.size else (0.0, 0.0),
        command=_command(best.plan),
        inputs={
            "model": model,
            "cluster": search.pool.words,
            "seq": search.load.seq,
            "global_batch": search.load.global_batch,
            "tokens": search.load.tokens,
            "optimizer": search.optimizer,
            "dtype": search.dtype,
            "engine": f"{search.engine.name}@{search.engine.version}",
            "techniques": list(search.techniques),
        },
        resolved=Resolved.of(search.model, search.pool),
    )


def _command(plan: Plan) -> str:
    try:
        return shlex.join(target(own_target(plan)).words(plan))
    except InputError:
        return ""


def step_report(model: str, search: Search, row: int) -> TrainingReport:
    recipe, strategy = search.grid.recipe(row, search.optimizer), search.grid.strategy(row)
    strategy = replace(strategy, techniques=search.techniques)
    label = f"{search.engine.name}@{search.engine.version}"
    plan = training_plan(model, search.pool, strategy, recipe, search.load, search.dtype, label)
    return report_step(step_of(plan, replace(search.pool, count=strategy.ranks)))


def _runner_up(search: Search, found: Quickest) -> dict[str, object]:
    if found.second is None or found.second_value is None:
        return {}
    return {
        "label": label(search.grid, found.second, search.techniques),
        "step_time_s": found.second_value,
        "why": f"{found.second_value / found.value - 1:.2%} slower",
    }
