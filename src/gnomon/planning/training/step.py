"""One training step, composed: an engine's figures, the pipeline's timeline, the memory of every rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from gnomon.cost.clock import SPREAD
from gnomon.cost.draws import normals
from gnomon.cost.host import LAUNCH_SPREAD
from gnomon.cost.machine import Machine, priced_dtype
from gnomon.cost.profile import Profile
from gnomon.cost.tiers import HOST, rooms
from gnomon.engines import TrainingEngine
from gnomon.engines.training import Grid, RankMemory, Sizes, StepTable, Traits, figures, rank_memory
from gnomon.engines.training.allocations import Allocations
from gnomon.engines.training.batches import EachRow, RowBatches
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.layer_cost import cut_of
from gnomon.engines.training.side import lanes_bound_s, room_bound_s, turns_bound_s
from gnomon.graph.layers import Cut
from gnomon.graph.ops import Op
from gnomon.planning.training.allocated import NEAR, is_replayed, step_allocations
from gnomon.planning.training.busiest import busiest_s
from gnomon.planning.training.drawn import DrawnSteps, drawn_steps
from gnomon.planning.training.times import step_timeline
from gnomon.sim.training import Schedule
from gnomon.sim.training.bounds import ROUNDING, Pipelines, pipeline_bound_s
from gnomon.sim.training.timeline import Timeline
from gnomon.spec import Batch, Estimate, Pool, Provenance
from gnomon.spec.estimate import DRAWS
from gnomon.spec.training_job import TrainingJob
from gnomon.spec.workload import Floats
from gnomon.techniques import Applied
from gnomon.techniques.hosts import TierPeaks, tier_bytes
from gnomon.techniques.plans import TrainingTechniques, priced_with, traits_with, waits_s

IN_FLIGHT = {"F": 1, "B": -1, "I": 0, "W": -1}
"""What each kind of task adds to the passes whose activations a rank holds."""


def step_bound_s(found: StepTable, traits: Traits, *, side: bool = True) -> Floats:
    """A lower bound on the step time of every row. What follows the pipeline follows its first rank, where that ends
    last, or else whichever rank has least to reduce. Without `side` it knows nothing of what runs beside the passes,
    which takes longer to bound than all else."""
    grid, splits = found.grid, found.grid.splits
    overlaps = grid.by_schedule(lambda one, rows: one.overlaps)

    def backward(end: str) -> Floats:
        """Whole, or in halves; some schedules run both."""
        named = (f"{end}{name}_s" for name in ("backward", "input", "weight"))
        whole, by_input, by_weight = (np.asarray(getattr(found, name)) for name in named)
        halves = by_input + by_weight
        return np.where(splits, np.where(overlaps > 0, np.minimum(whole, halves), halves), whole)

    pipelines = Pipelines(
        schedule=grid.schedule,
        pp=grid.pp,
        vp=grid.vp,
        micros=found.micros,
        forward_s=found.forward_s,
        backward_s=backward(""),
        first_forward_s=found.first_forward_s,
        first_backward_s=backward("first_"),
        last_forward_s=found.last_forward_s,
        last_backward_s=backward("last_"),
        weight_s=np.where(splits, found.weight_s, 0.0),
        first_weight_s=np.where(splits, found.first_weight_s, 0.0),
        last_weight_s=np.where(splits, found.last_weight_s, 0.0),
        overlap_s=found.overlap_s * overlaps,
        forward_send_s=found.send_s,
        backward_send_s=found.send_s,
        blocking=traits.blocking_sends,
    )
    alone = found.last_reduce_s * (grid.pp * grid.vp == 1)
    first = found.reduce_s + found.first_reduce_s + alone
    last = first / np.maximum(found.first_layers, 1)
    after = np.where(traits.overlaps(grid.pp), last, first + (grid.vp - 1) * found.reduce_s)
    least = found.reduce_s + np.minimum(np.minimum(found.first_reduce_s, found.last_reduce_s), 0.0)
    any_rank = np.where(traits.overlaps(grid.pp), least / (found.layers + 1), least)
    after = np.where(grid.by_schedule(lambda one, rows: one.ends_on_first) > 0, after, any_rank)
    bound = pipeline_bound_s(pipelines)
    if found.chunks.uneven:
        bound = np.maximum(bound, busiest_s(found) * ROUNDING)
    until = bound + after
    if side and found.side:
        passes = found.micros, found.chunks, found.side
        lanes = np.maximum(lanes_bound_s(grid, *passes), room_bound_s(grid, *passes))
        until = np.maximum(until, ROUNDING * lanes)
        forward_s, backward_s = (
            one + first + last
            for one, first, last in (
                (found.forward_s, found.first_forward_s, found.last_forward_s),
                (found.backward_s, found.first_backward_s, found.last_backward_s),
            )
        )
        until = np.maximum(until, ROUNDING * turns_bound_s(grid, *passes, (forward_s, backward_s)))
    return np.asarray(until + found.optimizer_s + found.gather_s)


def held_bytes(found: Sizes, rank: Any) -> Floats:
    """What the passes through a rank's layers leave at its fullest moment, of every row."""
    grid, chunks = found.grid, found.chunks
    if not chunks.uneven:
        return np.asarray(in_flight(grid, found.micros, rank) * found.layers * found.saved_activation_bytes)
    total, where = np.zeros(grid.size), np.broadcast_to(rank, grid.tp.shape)
    for shape, rows in chunks.groups:
        for place in np.unique(where[rows]).tolist():
            mine = rows[where[rows] == place]
            alike, kept = chunks.saved_activation_bytes(shape, mine, place)
            total[mine] = _held(grid.pick(mine), found.micros[mine], place, alike, kept)
    return total


def _held(grid: Grid, micros: Any, rank: int, alike: tuple[int, ...], kept: Floats) -> Floats:
    """The most that passes in flight keep, over all moments of a schedule. Of plans with the same pipeline; `alike`
    says which chunks keep the same, and `kept` how much: [rows, kinds of chunks]."""
    if kept.shape[1] == 1:
        return np.asarray(in_flight(grid, micros, rank) * kept[:, 0])
    total, key = np.zeros(grid.size), grid.schedule * (int(micros.max()) + 1) + micros
    for one in np.unique(key).tolist():
        same = np.flatnonzero(key == one)
        row = same[0]
        sizes = int(grid.pp[row]), int(grid.vp[row]), int(micros[row])
        moments = in_flight_over_time(grid.schedule_of(row), sizes, rank, alike)
        total[same] = (kept[same] @ moments.T).max(axis=1)
    return total


@lru_cache(maxsize=4096)
def in_flight_over_time(chosen: Schedule, sizes: tuple[int, int, int], rank: int, alike: tuple[int, ...]) -> Floats:
    """Passes in flight of each kind of chunk of a rank at every moment, each mixture once, for so many ranks, chunks
    and micro-batches. After a few rounds a schedule repeats itself."""
    pp, vp, micros = sizes
    tasks = chosen.tasks(pp, vp, min(micros, 4 * pp))[rank]
    signs = np.zeros((len(tasks), max(alike) + 1))
    for place, task in enumerate(tasks):
        signs[place, alike[task.chunk]] = IN_FLIGHT[task.kind]
    return np.unique(np.cumsum(signs, axis=0), axis=0)


def memory_of(found: StepTable, case: TrainingCase, rank: Any, applied: TrainingTechniques) -> RankMemory:
    """One pipeline rank of every row, with a plan's techniques."""
    return applied.memory(plain_memory(found, case, rank), case.at(found))


def plain_memory(found: Sizes, case: TrainingCase, rank: Any) -> RankMemory:
    """Memory of one pipeline rank of every row, without techniques."""
    return rank_memory(found, case.traits, case.optimizer, rank, held_bytes(found, rank))


def rank_peaks(found: StepTable, case: TrainingCase, applied: TrainingTechniques) -> TierPeaks:
    """Bytes of the fullest of all ranks of a pipeline, of every row."""
    peaks = TierPeaks(*np.zeros((len(TierPeaks._fields), found.grid.size)))
    for shape, rows in found.chunks.groups:
        some = found.pick(rows)
        held = peaks_of([memory_of(some, case, rank, applied) for rank in range(shape.pp)])
        for column, most in zip(peaks, held, strict=True):
            column[rows] = most
    return peaks


def peaks_of(ranks: Sequence[RankMemory]) -> TierPeaks:
    """The most that any of these ranks holds."""
    shape = ranks[0].total.shape

    def most(tier: Callable[[RankMemory], Floats | float]) -> Floats:
        return np.asarray(np.max([np.broadcast_to(tier(one), shape) for one in ranks], axis=0))

    return TierPeaks(most(lambda one: one.total), most(lambda one: one.host), most(lambda one: one.nvme))


def plain_peaks(found: Sizes, case: TrainingCase) -> Floats:
    """Bytes of the fullest rank of a pipeline, of every row, without techniques. Of inner ranks with the same layers
    the first has most passes in flight."""
    peaks = np.zeros(found.grid.size)
    for shape, rows in found.chunks.groups:
        some, counts = found.pick(rows), found.chunks.stages.counts(shape)
        between = {counts[rank].tobytes(): rank for rank in range(shape.pp - 2, 0, -1)}
        ranks = sorted({0, shape.pp - 1, *between.values()})
        peaks[rows] = np.max([plain_memory(some, case, rank).total for rank in ranks], axis=0)
    return peaks


def in_flight(grid: Grid, micros: Any, rank: Any) -> Floats:
    """Chunk passes a pipeline rank holds at its fullest, of every row."""
    where = np.broadcast_to(rank, grid.tp.shape)
    return grid.by_schedule(lambda one, rows: one.in_flight(grid.pp[rows], grid.vp[rows], micros[rows], where[rows]))


def usable_bytes(pool: Pool, traits: Traits) -> float:
    return pool.chip.memory_bytes * (1 - traits.spare) - traits.runtime_bytes


@dataclass(frozen=True)
class TrainingStep:
    """One plan on its chips. The first row of its figures is the estimate, the others are draws of it."""

    engine: TrainingEngine
    job: TrainingJob
    profile: Profile
    applied: TrainingTechniques = field(default_factory=Applied)

    @property
    def pool(self) -> Pool:
        return self.job.pool

    @cached_property
    def traits(self) -> Traits:
        return traits_with(self.applied, self._plain)

    @cached_property
    def machine(self) -> Machine:
        return Machine(self.pool, self.profile, self.traits.framework)

    @cached_property
    def figures(self) -> StepTable:
        job, machine = self.job, self.machine
        one = Grid.of(job.strategy, job.recipe)
        grid, rows = one.pick(np.zeros(DRAWS + 1, np.int64)), EachRow(self.drawn_op, host=self.drawn_host)
        found = figures(job.model, job.load, grid, machine, self.traits, job.recipe.optimizer, job.dtype, rows)
        return priced_with(self.applied, self.case, found)

    def drawn_op(self, op: Op) -> Floats:
        """What each row multiplies the seconds of an operator by."""
        return np.concatenate([[1.0], self.machine.factors(op.name, op.kind, priced_dtype(op))])

    @property
    def drawn_host(self) -> Floats:
        """The same of the host, for launches and hooks around modules."""
        return np.concatenate([[1.0], np.exp(LAUNCH_SPREAD * normals("host launches"))])

    @property
    def case(self) -> TrainingCase:
        """The job as techniques see it, with one plan."""
        return replace(self._plain, machine=self.machine, traits=self.traits)

    @property
    def priced(self) -> TrainingCase:
        """The job with its plan's figures and their draws."""
        return self.case.at(self.figures)

    @cached_property
    def _plain(self) -> TrainingCase:
        """The job under its engine without techniques."""

        def drawn(name: str, spread: float) -> Floats:
            return np.concatenate([[1.0], np.exp(spread * normals(f"{self.pool.chip.name}/{name}"))])

        job = self.job
        traits = self.engine.traits(job.model, job.recipe.optimizer, job.dtype).on_chip(self.pool.chip)
        return TrainingCase(
            model=job.model,
            pool=self.pool,
            load=job.load,
            machine=Machine(self.pool, self.profile, traits.framework),
            traits=traits,
            optimizer=job.recipe.optimizer,
            dtype=job.dtype,
            plans=Grid.of(job.strategy, job.recipe),
            drawn=drawn,
        )

    @property
    def cut(self) -> Cut:
        """One rank's part of a layer."""
        choices = Grid.of(self.job.strategy, self.job.recipe).cut(0)
        return cut_of(self.job.load.seq, self.job.dtype, choices)

    @property
    def batch(self) -> Batch:
        """The fullest micro-batch, as one context-parallel rank has it."""
        grid = Grid.of(self.job.strategy, self.job.recipe)
        return RowBatches(self.job.model, self.job.load, grid).fullest(self.job.strategy.cp)

    @cached_property
    def timeline(self) -> Timeline:
        return step_timeline(self.figures, 0, self.traits)

    @cached_property
    def compute_only_s(self) -> float:
        return step_timeline(self.figures, 0, self.traits, compute_only=True).step_s

    @cached_property
    def mean_step_s(self) -> Estimate:
        """The mean step of a run. Draws are as far from the estimate as their bounds are from its bound, boards differ
        in their clocks, and systems as an engine's published runs do; the spread of whole runs has all of that in
        it."""
        bounds = step_bound_s(self.figures, self.traits)
        bounds = bounds + waits_s(self.applied, self.priced, bounds)
        value = self.timeline.step_s + self.imbalance_s + self.waits_s
        profile = self.machine.profile
        whole = self.traits.run_spread.get(self.pool.chip.architecture.partition(" ")[0])
        boards = np.exp(SPREAD * normals(f"{profile.chip}/clock"))
        operators = bounds[1:] / bounds[0] * boards if whole is None else np.ones(DRAWS)
        system = normals(f"{self.engine.name}@{self.engine.version}/system")
        faster, slower = whole or (self.traits.system_spread,) * 2
        draws = value * operators * np.exp(np.where(system < 0, faster, slower) * system)
        return Estimate(value, draws, Provenance.FITTED, profile.source)

    @cached_property
    def step_s(self) -> Estimate:
        """One step, whose sequences are as long as they happen to be."""
        mean = self.mean_step_s
        if self.drawn is None:
            return mean
        others = mean.value - self.imbalance_s - self.timeline.pipeline_s
        each = (others + self.drawn.of_draws) / (others + float(np.mean(self.drawn.pipeline_s)))
        return replace(mean, draws=mean.draws * each)

    @cached_property
    def drawn(self) -> DrawnSteps | None:
        """Steps of drawn sequences; none where all micro-batches take equally long."""
        if self.job.load.sequences is None:
            return None
        one = self.figures.pick(np.zeros(1, np.int64))
        return drawn_steps(self.case, self.applied, one)

    @property
    def imbalance_s(self) -> float:
        """What a step takes beyond one whose micro-batches are all the mean one."""
        return 0.0 if self.drawn is None else self.drawn.beyond(self.timeline.pipeline_s)

    @cached_property
    def waits_s(self) -> float:
        """What techniques make a step wait for beside it."""
        line = np.full(self.figures.grid.size, self.timeline.step_s)
        return float(waits_s(self.applied, self.priced, line)[0])

    @cached_property
    def tier_bytes(self) -> Mapping[str, float]:
        """What techniques keep on one host, by tier."""
        used = peaks_of([self.memory(rank) for rank in range(self.job.strategy.pp)])
        return {tier: float(size[0]) for tier, size in tier_bytes(used, self.case.at(self.figures)).items()}

    @property
    def host_bytes(self) -> float:
        return self.tier_bytes[HOST]

    @property
    def full_tier(self) -> str:
        """The tier of a host that has no room for what techniques keep there; empty where all have."""
        room = rooms(self.pool.machine)
        return next((tier for tier, size in self.tier_bytes.items() if size > room[tier]), "")

    @property
    def fits(self) -> bool:
        return max(self.peaks) <= self.usable_bytes and not self.full_tier and not self.fragmented

    @property
    def fragmented(self) -> bool:
        """Whether the allocator has no room for what would fit without its fragmentation."""
        near = NEAR * self.usable_bytes < max(self.peaks) <= self.usable_bytes
        return near and self.allocations is not None and not self.allocations.fits

    @cached_property
    def allocations(self) -> Allocations | None:
        """Steps run through the allocator, of a plan whose engine and degrees let it."""
        job, traits = self.job, self.traits
        if self.applied or not is_replayed(traits, job.strategy, job.recipe):
            return None
        return step_allocations(job.model, job.load, job.dtype, traits, job.strategy, job.recipe, self.usable_bytes)

    def memory(self, rank: int) -> RankMemory:
        """Parts of one pipeline rank, one row a draw."""
        return memory_of(self.figures, self.case, rank, self.applied)

    @cached_property
    def peaks(self) -> list[float]:
        """Bytes of each pipeline rank at its fullest."""
        return [float(self.memory(rank).total[0]) for rank in range(self.job.strategy.pp)]

    @property
    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Further figures of techniques, by name, of the fullest rank."""
        fullest = self.peaks.index(max(self.peaks))
        return self.applied.metrics(self.memory(fullest), self.priced) if self.applied else {}

    @property
    def reserved_bytes(self) -> float:
        """What the allocator of the fullest rank reserves, where that is known beside what it allocates."""
        if self.allocations is not None:
            return self.allocations.reserved_bytes
        return max(self.peaks) * (1 + self.traits.fragmentation)

    @property
    def usable_bytes(self) -> float:
        return usable_bytes(self.pool, self.traits)

    @cached_property
    def energy_j(self) -> Estimate:
        """Of all chips over a step; a board never draws more than its limit."""
        ranks, power, seconds = self.job.strategy.ranks, self.machine.profile.power, self.step_s

        def joules(free: Any, lasting: Any) -> Any:
            return np.minimum(free + ranks * power["active_w"] * lasting, ranks * self.pool.chip.tdp_w * lasting)

        free = self.figures.energy_j
        draws = np.asarray(joules(free[1:], seconds.draws))
        return Estimate(float(joules(free[0], seconds.value)), draws, seconds.provenance, seconds.source)

    @property
    def flops(self) -> Mapping[str, float]:
        return {"model": float(self.figures.model_flops[0]), "recomputed": float(self.figures.recomputed_flops[0])}
