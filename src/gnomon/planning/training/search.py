"""All plans of a model on a cluster: which fit, a lower bound on each step time, and the step time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.machine import Machine
from gnomon.cost.tiers import rooms
from gnomon.engines import TrainingEngine
from gnomon.engines.training import Grid, StepTable, Traits, figures, sizes
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.grid import Ints
from gnomon.engines.training.job import check_positions
from gnomon.errors import InputError
from gnomon.planning.training.allocated import NEAR, is_replayed, step_allocations
from gnomon.planning.training.binding import TrainingBinding
from gnomon.planning.training.checks import check_dtype, check_precision, check_tasks, training_dtype
from gnomon.planning.training.drawn import drawn_steps
from gnomon.planning.training.drawn_bounds import drawn_bounds_s, path_bounds_s
from gnomon.planning.training.space import space
from gnomon.planning.training.step import (
    TrainingStep,
    memory_of,
    peaks_of,
    plain_memory,
    plain_peaks,
    rank_peaks,
    step_bound_s,
    usable_bytes,
)
from gnomon.planning.training.times import step_timeline
from gnomon.spec import Model, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.workload import Floats
from gnomon.techniques import TRAINING, applied, search_space
from gnomon.techniques.hosts import TierPeaks, tier_bytes
from gnomon.techniques.plans import TrainingTechniques, allowed, lowered, priced_with, traits_with, waits_s

AUTO = "auto"
FIRST = 8
"""Plans of drawn sequences that are timed before the others are bounded closely."""
SIMPLEST = ("zero", "tp", "recompute", "pp", "vp", "cp", "ep", "sequence_parallel")
"""Of plans that take equally long the one with less of these is chosen, the first of them first."""


@dataclass(frozen=True)
class Search:
    """All plans of a model on a cluster, side by side."""

    bound: TrainingBinding
    load: TrainingLoad
    optimizer: str
    dtype: str
    grid: Grid
    techniques: tuple[str, ...] = ()
    shared: dict[tuple[object, ...], tuple[Pool, Grid, StepTable]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Figures without techniques, which are the same whichever of them a copy of this search has."""
    whole: tuple[Search, Ints] | None = field(default=None, repr=False, compare=False)
    """The search that this one has some plans of, with the same techniques, and which: what it prices is picked of
    what that one has priced. A copy with other plans or techniques has none."""

    @cached_property
    def known(self) -> dict[tuple[int, ...], Any]:
        """Pieces of drawn micro-batches that plans have in common."""
        return {}

    @property
    def model(self) -> Model:
        return self.bound.model

    @property
    def pool(self) -> Pool:
        return self.bound.pool

    @property
    def engine(self) -> TrainingEngine:
        return self.bound.engine

    @cached_property
    def traits(self) -> Traits:
        return self.case.traits

    @cached_property
    def applied(self) -> TrainingTechniques:
        return applied(TRAINING, self.techniques)

    @cached_property
    def case(self) -> TrainingCase:
        """The job as techniques see it, with all plans."""
        traits = self.engine.traits(self.model, self.optimizer, self.dtype).on_chip(self.pool.chip)
        plain = TrainingCase(
            model=self.model,
            pool=self.pool,
            load=self.load,
            machine=Machine(self.pool, self.bound.profile, traits.framework),
            traits=traits,
            optimizer=self.optimizer,
            dtype=self.dtype,
            plans=self.grid,
        )
        return replace(plain, traits=traits_with(self.applied, plain))

    @cached_property
    def figures(self) -> StepTable:
        """Of all plans. Without techniques only those that fit are priced: see `priced`."""
        return priced_with(self.applied, self.case, self._unpriced)

    @property
    def _unpriced(self) -> StepTable:
        """The same without what techniques change of it, made once for all searches with these plans."""
        if self.whole:
            search, rows = self.whole
            return search._unpriced.pick(rows)
        key, machine = self._key, self.case.machine
        if key not in self.shared:
            found = figures(self.model, self.load, self.grid, machine, self.traits, self.optimizer, self.dtype)
            self.shared[key] = self.pool, self.grid, found
        return self.shared[key][-1]

    @property
    def narrowed(self) -> Search:
        """The plans alone that techniques apply to."""
        if not self.applied or self.allowed.all() or not self.allowed.any():
            return self
        rows = np.flatnonzero(self.allowed)
        return replace(self, grid=self.grid.pick(rows), whole=(self, rows))

    @property
    def _key(self) -> tuple[object, ...]:
        return id(self.pool), id(self.grid), str(lowered(self.applied))

    @cached_property
    def peak_bytes(self) -> Floats:
        """Of the fullest rank: the first holds most micro-batches and the embedding, the last the head; those
        between hold less than one of them, unless the ends are light. Where layers differ, it may be any."""
        if self.applied:
            return self.tier_peaks.chip
        sized = sizes(self.model, self.load, self.grid, self.traits, self.dtype)
        if sized.chunks.uneven:
            return plain_peaks(sized, self.case)
        return np.asarray(np.max([plain_memory(sized, self.case, rank).total for rank in self._ranks], axis=0))

    @property
    def _ranks(self) -> tuple[Ints, ...]:
        """One of which is the fullest where layers are equal."""
        pp = self.grid.pp
        return np.zeros_like(pp), np.minimum(1, pp - 1), pp - 1

    @cached_property
    def tier_peaks(self) -> TierPeaks:
        """With techniques, the most that any rank holds in each tier."""
        found = self.figures
        if found.chunks.uneven:
            return rank_peaks(found, self.case, self.applied)
        return peaks_of([memory_of(found, self.case, rank, self.applied) for rank in self._ranks])

    @cached_property
    def full_tiers(self) -> dict[str, NDArray[np.bool_]]:
        """Plans whose hosts have no room for what techniques keep there, by tier."""
        room = rooms(self.pool.machine)
        return {tier: size > room[tier] for tier, size in tier_bytes(self.tier_peaks, self.case).items()}

    @cached_property
    def preference(self) -> Floats:
        """Lower for what is preferred where plans take equally long: the simplest, then what needs less memory."""
        place = np.zeros(self.grid.size)
        for name in SIMPLEST:
            column = getattr(self.grid, name)
            place = place * (int(column.max()) + 1) + column
        return np.asarray(place + self.peak_bytes / (2 * float(self.peak_bytes.max())))

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        if self.applied and not self.allowed.any():
            return self.allowed
        here = np.asarray(self.peak_bytes <= usable_bytes(self.pool, self.traits))
        if self.applied:
            here = here & self.allowed
            for rows in self.full_tiers.values():
                here = here & ~rows
            return here
        return here & self._unfragmented(here) if self.traits.caching_allocator else here

    def _unfragmented(self, here: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Plans near the edge of the memory that have room in the allocator; ranks of several copies do the same."""
        usable, found = usable_bytes(self.pool, self.traits), np.ones(self.grid.size, bool)
        near = np.flatnonzero(here & (self.peak_bytes > NEAR * usable))
        alike: dict[tuple[object, ...], bool] = {}
        for row in near.tolist():
            strategy, recipe = self.grid.strategy(row), self.grid.recipe(row, self.optimizer)
            if is_replayed(self.traits, strategy, recipe):
                micros = self.load.global_batch // (strategy.dp * recipe.micro_batch)
                key = (recipe, strategy.tp, strategy.cp, micros, strategy.dp > 1)
                if key not in alike:
                    about = (self.model, self.load, self.dtype, self.traits, strategy, recipe, usable)
                    alike[key] = step_allocations(*about).fits
                found[row] = alike[key]
        return found

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """Plans that the techniques apply to, and that have the degrees and the recipe which they ask for."""
        return allowed(self.applied, self.case)

    @cached_property
    def bounds_s(self) -> Floats:
        """Lower bounds of those that fit; the others are out of the question."""
        rows, found = self.priced
        bounds = step_bound_s(found, self.traits)
        if self.load.sequences is not None and not self.applied:
            bounds = self._of_drawn(bounds, rows, found)
        return self._everywhere(rows, found, bounds)

    @property
    def has_side(self) -> bool:
        """Whether techniques have something run beside the passes."""
        return bool(self.applied) and bool(self.priced[1].side)

    @cached_property
    def loose_bounds_s(self) -> Floats:
        """The same where nothing runs beside the passes; else bounds that do not know of it."""
        rows, found = self.priced
        return (
            self._everywhere(rows, found, step_bound_s(found, self.traits, side=False)) if found.side else self.bounds_s
        )

    def closer_bounds_s(self, mask: NDArray[np.bool_]) -> Floats:
        """Loose bounds, but for these plans."""
        rows, found = self.priced
        places = np.flatnonzero(mask[rows]) if found.side else np.zeros(0, np.int64)
        bounds = self.loose_bounds_s.copy()
        if places.size:
            some = found.pick(places)
            bounds[rows[places]] = self._everywhere(rows[places], some, step_bound_s(some, self.traits))[rows[places]]
        return bounds

    def _everywhere(self, rows: Ints, found: StepTable, bounds: Floats) -> Floats:
        """Bounds of some plans with what techniques make them wait for; infinite for all others."""
        everywhere = np.full(self.grid.size, np.inf)
        everywhere[rows] = bounds + waits_s(self.applied, self.case.at(found), bounds)
        return np.where(self.fits, everywhere, np.inf)

    def _of_drawn(self, bounds: Floats, rows: Ints, found: StepTable) -> Floats:
        """Bounds that know how unequal micro-batches are: closer ones where a few plans that look best are no slower
        than the others at least are."""
        after = found.optimizer_s + found.gather_s
        bounds = np.maximum(bounds, drawn_bounds_s(self.case, found) + after)
        first = np.argsort(bounds, kind="stable")[:FIRST]
        known = min(self.step_s(int(rows[place])) for place in first)
        open_ = np.flatnonzero((bounds < known) & (found.grid.pp > 1))
        if open_.size:
            paths = path_bounds_s(self.case, found.pick(open_))
            bounds[open_] = np.maximum(bounds[open_], paths + after[open_])
        return bounds

    @cached_property
    def priced(self) -> tuple[Ints, StepTable]:
        """Plans whose seconds are asked for, and their figures: those that fit, which without techniques is known
        before anything is priced. With techniques, figures of all others are not asked for again, and are let go."""
        rows = np.flatnonzero(self.fits)
        if self.applied:
            found = self.figures.pick(rows)
            self.__dict__.pop("figures", None)
            return rows, found
        if rows.size == self.grid.size or self._key in self.shared:
            return rows, self.figures.pick(rows)
        some, machine = self.grid.pick(rows), self.case.machine
        return rows, figures(self.model, self.load, some, machine, self.traits, self.optimizer, self.dtype)

    @property
    def lean(self) -> Search:
        """The plans that take one sequence at a time: none needs less memory than the same plan with one, so where
        none of these fits, none does."""
        return replace(self, grid=self.grid.pick(self.grid.micro_batch == 1), whole=None)

    def step_s(self, row: int) -> float:
        stages = int(self.grid.pp[row] * self.grid.vp[row])
        rows, found = self.priced
        place = int(np.searchsorted(rows, row))
        check_tasks(self.load.global_batch, int(found.micros[place]), stages)
        some, timed = found.pick(np.array([place])), step_timeline(found, place, self.traits)
        line = timed.step_s
        if self.load.sequences is not None:
            drawn = drawn_steps(self.case, self.applied, some, self.known)
            line += drawn.beyond(timed.pipeline_s) if drawn else 0.0
        return line + float(waits_s(self.applied, self.case.at(some), np.array([line]))[0])


def search_of(
    bound: TrainingBinding, load: TrainingLoad, optimizer: str, dtype: str | None, lean: bool = False,
    every: bool = True,
) -> Search:  # fmt: skip
    """The search over all plans, or over the `lean` ones alone; unless it is `every` one that is looked for, without
    those that another schedule is never slower than."""
    pool, chosen = bound.pool, dtype or training_dtype(bound.model, bound.pool.chip)
    check_positions(bound.model, load.seq)
    check_dtype(pool, bound.model, chosen, bound.engine.traits(bound.model, optimizer, chosen))
    plain = bound.job(Strategy(), Recipe(optimizer=optimizer, zero=1), load, chosen)
    check_precision(plain, bound.engine)
    bound = replace(bound, model=plain.model)  # which knows its layers in 16 bits
    grid = space(bound.model, pool, load, bound.engine, optimizer, chosen, lean, every)
    if plain.recipe.fp8_param_gather:
        grid = grid.having(fp8_param_gather=np.where(grid.zero > 0, 1, 0))
    return Search(bound, load, optimizer, chosen, grid)


def technique_sets(techniques: Sequence[str]) -> list[tuple[str, ...]]:
    """What is searched one after the other: plans with the techniques, and for `auto` with one more each."""
    given = tuple(text for text in techniques if text != AUTO)
    applied(TRAINING, given)
    more = [(*given, text) for text in search_space()] if AUTO in techniques else []
    return [given, *(words for words in more if joins(words))]


def joins(words: Sequence[str]) -> bool:
    try:
        return bool(applied(TRAINING, words))
    except InputError:
        return False


def label(grid: Grid, row: int, techniques: Sequence[str] = ()) -> str:
    """A plan in a line."""
    recipe = grid.recipe(row, "")
    degrees = [f"{name.upper()} {int(getattr(grid, name)[row])}" for name in ("tp", "pp", "vp", "cp", "ep", "dp")]
    words = [name for name in degrees if not name.endswith(" 1")] or ["1 chip"]
    words += [f"micro-batch {recipe.micro_batch}"]
    words += [] if recipe.recompute == "none" else [f"{recipe.recompute} recompute"]
    words += [f"ZeRO-{recipe.zero}"] if recipe.zero else []
    words += [f"HSDP over {recipe.dp_shard}"] if recipe.dp_shard else []
    words += [recipe.schedule] if int(grid.pp[row]) > 1 else []
    words += [expert_words(recipe.expert_tp)] if recipe.expert_tp else []
    words += [f"KV by {recipe.cp_comm}"] if int(grid.cp[row]) > 1 else []
    words += ["sequence parallel"] if int(grid.sequence_parallel[row]) else []
    return ", ".join([*words, *techniques])


def expert_words(ranks: int) -> str:
    """How each expert's matrices are sharded, where that differs from other matrices."""
    return "unsharded experts" if ranks == 1 else f"experts sharded over {ranks}"


def step_of_row(search: Search, row: int) -> TrainingStep:
    """One plan of a search, which has checked it, on the chips that it takes."""
    recipe, strategy = search.grid.recipe(row, search.optimizer), search.grid.strategy(row)
    bound = search.bound
    job = bound.job(replace(strategy, techniques=search.techniques), recipe, search.load, search.dtype)
    gathered = replace(job.recipe, fp8_param_gather=recipe.fp8_param_gather)
    job = replace(job, recipe=gathered, pool=replace(bound.pool, count=strategy.ranks))
    return TrainingStep(bound.engine, job, bound.profile, search.applied)
