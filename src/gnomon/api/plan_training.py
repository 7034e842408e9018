"""The quickest way to train a model on a cluster: every plan bounded at once, the hopeful ones timed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.api.results import TrainingPlanReport, TrainingReport
from gnomon.api.simulate_training import (
    as_flags,
    check_chips,
    check_dtype,
    check_tasks,
    load_of,
    report_step,
    step_of,
    training_dtype,
    training_plan,
)
from gnomon.api.train_space import space
from gnomon.api.training import machine_for, memory_of, rank_peaks, step_bound_s, step_timeline, usable_bytes
from gnomon.engines import TrainingEngine, training_engine
from gnomon.engines.training import Figures, Grid, Traits, figures
from gnomon.errors import DoesNotFitError, GnomonError, InputError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.recipe import OPTIMIZERS
from gnomon.report.train import expert_words
from gnomon.search.quickest import Quickest, quickest
from gnomon.spec import Model, Plan, Pool, TrainingLoad
from gnomon.spec.workload import Floats
from gnomon.techniques import Applied, Case, applied, searched_words
from gnomon.units import format_bytes

AUTO = "auto"
DECIDING = ("pp", "vp", "cp", "ep", "dp", "micro_batch", "schedule", "recompute", "cp_comm")
"""What of a plan decides whether techniques apply to it: not how its layers, states and experts are cut."""
LARGER = (2, 4, 8, 16, 32, 64, 128, 256)
"""A model that does not fit is tried on so many times the nodes, to say how many it needs."""


@dataclass(frozen=True)
class Search:
    """All plans of a model on a cluster, side by side."""

    model: Model
    pool: Pool
    load: TrainingLoad
    engine: TrainingEngine
    optimizer: str
    dtype: str
    grid: Grid
    techniques: tuple[str, ...] = ()

    @cached_property
    def traits(self) -> Traits:
        return self.engine.traits(self.model)

    @cached_property
    def applied(self) -> Applied:
        return applied(self.techniques)

    @cached_property
    def case(self) -> Case:
        return Case(
            model=self.model,
            pool=self.pool,
            load=self.load,
            machine=machine_for(self.pool, self.traits),
            traits=self.traits,
            optimizer=self.optimizer,
        )

    @cached_property
    def figures(self) -> Figures:
        machine, traits = self.case.machine, self.traits
        found = figures(self.model, self.load, self.grid, machine, traits, self.optimizer, self.dtype)
        return self.applied.figures(found, self.case)

    @cached_property
    def peak_bytes(self) -> Floats:
        """Of the fullest rank: the first holds most micro-batches and the embedding, the last the head; those
        between hold less than one of them, unless the ends are light. Where layers differ, it may be any."""
        pp, found = self.grid.pp, self.figures
        if found.chunks.uneven:
            return rank_peaks(found, self.case, self.applied)
        ranks = (np.zeros_like(pp), np.minimum(1, pp - 1), pp - 1)
        peaks = [memory_of(found, self.case, rank, self.applied).total for rank in ranks]
        return np.asarray(np.max(peaks, axis=0))

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        here = np.asarray(self.peak_bytes <= usable_bytes(self.pool, self.traits))
        return here & self.allowed & self.applied.host_fits(self.figures, self.case) if self.applied else here

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """Plans that the techniques apply to, and that have the degrees and the recipe which they ask for."""
        found = np.ones(self.grid.size, bool)
        for _, rows in self.grid.groups(DECIDING):
            strategy, recipe = self.grid.strategy(rows[0]), self.grid.recipe(rows[0], self.optimizer)
            same = self.applied.settled(strategy, recipe) == (strategy, recipe)
            found[rows] = same and not self.applied.why_not(self.case, strategy, recipe)
        return found

    @cached_property
    def bounds_s(self) -> Floats:
        """Lower bounds of those that fit; the others are out of the question."""
        bounds = step_bound_s(self.figures, self.traits)
        bounds = bounds + self.applied.waits(self.figures, bounds, self.case)
        return np.where(self.fits, bounds, np.inf)

    @property
    def lean(self) -> Search:
        """The plans that take one sequence at a time: none needs less memory than the same plan with one, so where
        none of these fits, none does."""
        return replace(self, grid=self.grid.pick(self.grid.micro_batch == 1))

    def step_s(self, row: int) -> float:
        stages = int(self.grid.pp[row] * self.grid.vp[row])
        check_tasks(self.load.global_batch, int(self.figures.micros[row]), stages)
        line = step_timeline(self.figures, row, self.traits).step_s
        some = self.figures.pick(np.array([row]))
        return line + float(self.applied.waits(some, np.array([line]), self.case)[0])


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
    at or above the best time.
    """
    started = time.perf_counter()
    load = load_of(seq, global_batch, tokens)
    if optimizer not in OPTIMIZERS:
        raise InputError(
            f"unknown optimizer '{optimizer}'", where="--optimizer", hint=f"Known: {', '.join(OPTIMIZERS)}."
        )
    pool = parse_pool(cluster, "--cluster")
    check_chips(pool.count, "--cluster")
    try:
        plain = _search(load_model(model), pool, load, training_engine(engine), optimizer, dtype)
        searches = [replace(plain, techniques=words) for words in _sets(techniques)]
        fitting = [search for search in searches if search.fits.any()]
        if not fitting:
            raise _nowhere(searches[0].lean)
        search, found = _best(fitting, progress)
        return _report(str(model), search, found, time.perf_counter() - started)
    except GnomonError as error:
        error.where, error.hint = as_flags(error.where), as_flags(error.hint)
        raise


def _search(
    model: Model, pool: Pool, load: TrainingLoad, engine: TrainingEngine, optimizer: str, dtype: str | None
) -> Search:
    chosen = dtype or training_dtype(model, pool.chip)
    check_dtype(pool, chosen)
    grid = space(model, pool, load, engine, optimizer, chosen)
    return Search(model, pool, load, engine, optimizer, chosen, grid)


def _sets(techniques: Sequence[str]) -> list[tuple[str, ...]]:
    """What is searched one after the other: plans with the techniques, and for `auto` with one more each."""
    given = tuple(text for text in techniques if text != AUTO)
    applied(given)
    more = [(*given, text) for text in searched_words()] if AUTO in techniques else []
    return [given, *(words for words in more if _joins(words))]


def _joins(words: Sequence[str]) -> bool:
    try:
        return bool(applied(words))
    except InputError:
        return False


def _best(searches: Sequence[Search], progress: Callable[[int], None] | None) -> tuple[Search, Quickest]:
    """The quickest plan of all, the first of equals. A search whose best bound is above it has nothing to say."""
    best: tuple[Search, Quickest] | None = None
    for search in searches:
        if best is None or search.bounds_s.min() < best[1].value:
            found = quickest(search.bounds_s, search.step_s, progress)
            if best is None or found.value < best[1].value:
                best = search, found
    assert best is not None  # some search has a plan that fits
    return best


def _report(model: str, search: Search, found: Quickest, seconds: float) -> TrainingPlanReport:
    best = _step(model, search, found.best)
    lacking = (search.peak_bytes - usable_bytes(search.pool, search.traits))[~search.fits]
    fit = int(search.fits.sum())
    return TrainingPlanReport(
        title=best.title,
        plans_considered=search.grid.size,
        plans_fit=fit,
        plans_timed=found.evaluated,
        best=best,
        label=label(search.grid, found.best, search.techniques),
        bound_s=min(found.bound, found.value),
        runner_up=_runner_up(search, found),
        rejected={
            "does not fit in memory": search.grid.size - fit,
            "cannot be quicker": fit - found.evaluated,
            "timed and slower": found.evaluated - 1,
        },
        shortage_bytes=(float(lacking.min()), float(lacking.max())) if lacking.size else (0.0, 0.0),
        seconds=seconds,
        command=_command(search.engine, best.plan),
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
    )


def _command(engine: TrainingEngine, plan: Plan) -> str:
    try:
        return shlex.join(engine.command(plan))
    except InputError:
        return ""


def _step(model: str, search: Search, row: int) -> TrainingReport:
    recipe, strategy = search.grid.recipe(row, search.optimizer), search.grid.strategy(row)
    strategy = replace(strategy, techniques=search.techniques)
    label = f"{search.engine.name}@{search.engine.version}"
    plan = training_plan(model, search.pool, strategy, recipe, search.load, search.dtype, label)
    return report_step(step_of(plan, replace(search.pool, count=strategy.ranks)))


def _runner_up(search: Search, found: Quickest) -> dict[str, object]:
    if found.second is None or found.second_value is None:
        return {}
    return {
        "label": label(search.grid, found.second),
        "step_time_s": found.second_value,
        "why": f"{found.second_value / found.value - 1:.2%} slower",
    }


def label(grid: Grid, row: int, techniques: Sequence[str] = ()) -> str:
    """A plan in a line."""
    recipe = grid.recipe(row, "")
    degrees = [f"{name.upper()} {int(getattr(grid, name)[row])}" for name in ("tp", "pp", "vp", "cp", "ep", "dp")]
    words = [name for name in degrees if not name.endswith(" 1")] or ["1 chip"]
    words += [f"micro-batch {recipe.micro_batch}"]
    words += [] if recipe.recompute == "none" else [f"{recipe.recompute} recompute"]
    words += [f"ZeRO-{recipe.zero}"] if recipe.zero else []
    words += [recipe.schedule] if int(grid.pp[row]) > 1 else []
    words += [expert_words(recipe.expert_tp)] if recipe.expert_tp else []
    words += [f"keys by {recipe.cp_comm}"] if int(grid.cp[row]) > 1 else []
    words += ["sequence parallel"] if int(grid.sequence_parallel[row]) else []
    return ", ".join([*words, *techniques])


def _nowhere(search: Search) -> DoesNotFitError:
    """The plan that lacks least, and the chips with which one would fit."""
    usable = usable_bytes(search.pool, search.traits)
    row = int(np.argmin(search.peak_bytes))
    chip, count = search.pool.chip, search.pool.count
    message = (
        f"no plan of {search.model.name} fits {count:,} x {chip.name}: the smallest ({label(search.grid, row)}) needs "
        f"{format_bytes(float(search.peak_bytes[row]))} of {format_bytes(usable)} usable"
    )
    enough = _enough(search)
    idea = next((words for words in searched_words() if _helps(search, words)), "")
    also = f" With --with {idea} it fits here." if idea else ""
    if enough:
        return DoesNotFitError(message, where="--cluster", hint=f"It fits {chip.reference}:{enough}.{also}")
    if also:
        return DoesNotFitError(message, where="--cluster", hint=also.strip())
    other = next((name for name in OPTIMIZERS if name != search.optimizer), "")
    return DoesNotFitError(message, where="--cluster", hint=f"More chips do not help; try --optimizer {other}.")


def _helps(search: Search, words: str) -> bool:
    together = (*search.techniques, words)
    return _joins(together) and bool(replace(search, techniques=together).fits.any())


def _enough(search: Search) -> int:
    """The least chips, in whole nodes, on which some plan fits; none where no number of them is enough. Plans may
    leave chips idle, so what fits on few fits on more."""
    node = search.pool.node_size

    def fits(nodes: int) -> bool:
        pool = replace(search.pool, count=nodes * node, per_node=node)
        wider = _search(search.model, pool, search.load, search.engine, search.optimizer, search.dtype)
        return bool(replace(wider, techniques=search.techniques).lean.fits.any())

    low = search.pool.count // node
    high = next((max(low, 1) * times for times in LARGER if fits(max(low, 1) * times)), 0)
    while high and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high * node
