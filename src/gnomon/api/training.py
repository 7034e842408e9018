"""One training step, composed: an engine's figures, the pipeline's timeline, the memory of every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnomon.cost.clock import SPREAD
from gnomon.cost.machine import Machine, normals, priced_dtype
from gnomon.cost.profile import profile_for
from gnomon.engines import TrainingEngine
from gnomon.engines.training import Figures, Grid, RankMemory, Traits, figures, rank_memory
from gnomon.engines.training.job import Job
from gnomon.graph.ops import Op
from gnomon.sim.training import schedule
from gnomon.sim.training.bounds import Pipelines, pipeline_bound_s
from gnomon.sim.training.timeline import Timeline, timeline
from gnomon.sim.training.times import StepTimes, without_communication
from gnomon.spec import Estimate, Pool, Provenance
from gnomon.spec.estimate import DRAWS
from gnomon.spec.training import SCHEDULES
from gnomon.spec.workload import Floats


def machine_for(pool: Pool, traits: Traits) -> Machine:
    return Machine(pool, profile_for(pool.chip), traits.framework)


def step_times(found: Figures, row: int, traits: Traits, *, quiet: bool = False) -> StepTimes:
    """Seconds of every chunk of one plan; `quiet` were all communication free."""

    def chunks(name: str) -> Floats:
        middle = getattr(found, f"quiet_{name}" if quiet and name != "reduce_s" else name)[row]
        filled = np.full((int(found.grid.pp[row]), int(found.grid.vp[row])), middle)
        filled[0, 0] += getattr(found, f"first_{name}")[row]
        filled[-1, -1] += getattr(found, f"last_{name}")[row]
        return filled

    times = StepTimes(
        forward_s=chunks("forward_s"),
        backward_s=chunks("backward_s"),
        forward_send_s=float(found.send_s[row]),
        backward_send_s=float(found.send_s[row]),
        blocking=traits.blocking_sends,
        reduce_s=chunks("reduce_s"),
        reduce_parts=int(found.layers[row]),
        overlap=bool(traits.overlaps(found.grid.pp[row])),
        optimizer_s=float(found.optimizer_s[row]),
        gather_s=float(found.gather_s[row]),
    )
    return without_communication(times) if quiet else times


def step_timeline(found: Figures, row: int, traits: Traits, *, quiet: bool = False) -> Timeline:
    name = SCHEDULES[int(found.grid.schedule[row])]
    pp, vp, micros = int(found.grid.pp[row]), int(found.grid.vp[row]), int(found.micros[row])
    return timeline(schedule(name).tasks(pp, vp, micros), step_times(found, row, traits, quiet=quiet))


def step_bound_s(found: Figures, traits: Traits) -> Floats:
    """No step of a row is quicker. What follows the pipeline follows its first rank, which ends last."""
    grid = found.grid
    pipelines = Pipelines(
        schedule=grid.schedule,
        pp=grid.pp,
        vp=grid.vp,
        micros=found.micros,
        forward_s=found.forward_s,
        backward_s=found.backward_s,
        first_forward_s=found.first_forward_s,
        first_backward_s=found.first_backward_s,
        last_forward_s=found.last_forward_s,
        last_backward_s=found.last_backward_s,
        forward_send_s=found.send_s,
        backward_send_s=found.send_s,
        blocking=traits.blocking_sends,
    )
    alone = found.last_reduce_s * (grid.pp * grid.vp == 1)
    first = found.reduce_s + found.first_reduce_s + alone
    last = first / np.maximum(found.layers, 1)
    after = np.where(traits.overlaps(grid.pp), last, first + (grid.vp - 1) * found.reduce_s)
    return np.asarray(pipeline_bound_s(pipelines) + after + found.optimizer_s + found.gather_s)


def in_flight(grid: Grid, micros: Any, rank: Any) -> Floats:
    """Chunk passes a pipeline rank holds at its fullest, of every row."""
    total, where = np.zeros(grid.size), np.broadcast_to(rank, grid.tp.shape)
    for code, name in enumerate(SCHEDULES):
        rows = np.flatnonzero(grid.schedule == code)
        total[rows] = schedule(name).held(grid.pp[rows], grid.vp[rows], micros[rows], where[rows])
    return total


def usable_bytes(pool: Pool, traits: Traits) -> float:
    return pool.chip.memory_bytes * (1 - traits.spare) - traits.runtime_bytes


@dataclass(frozen=True)
class TrainingStep:
    """One plan on its chips. The first row of its figures is the estimate, the others are draws of it."""

    engine: TrainingEngine
    job: Job
    pool: Pool

    @cached_property
    def traits(self) -> Traits:
        return self.engine.traits(self.job.model)

    @cached_property
    def machine(self) -> Machine:
        return machine_for(self.pool, self.traits)

    @cached_property
    def figures(self) -> Figures:
        job, machine = self.job, self.machine
        one = Grid.of(job.plan.strategy, job.recipe)
        grid = one.pick(np.zeros(DRAWS + 1, np.int64))

        def drawn(op: Op) -> Floats:
            return np.concatenate([[1.0], machine.factors(op.name, op.kind, priced_dtype(op))])

        optimizer, dtype = job.recipe.optimizer, job.plan.dtype
        return figures(job.model, job.load, grid, machine, self.traits, optimizer, dtype, drawn)

    @cached_property
    def timeline(self) -> Timeline:
        return step_timeline(self.figures, 0, self.traits)

    @cached_property
    def quiet_s(self) -> float:
        return step_timeline(self.figures, 0, self.traits, quiet=True).step_s

    @cached_property
    def step_s(self) -> Estimate:
        """Draws are as far from the estimate as their bounds are from its bound, and boards differ in their clocks."""
        bounds = step_bound_s(self.figures, self.traits)
        value = self.timeline.step_s
        profile = self.machine.profile
        boards = np.exp(SPREAD * normals(f"{profile.chip}/clock"))
        return Estimate(value, value * boards * bounds[1:] / bounds[0], Provenance.FITTED, profile.source)

    def memory(self, rank: int) -> RankMemory:
        """Parts of one pipeline rank, as arrays of one."""
        found = self.figures
        held = in_flight(found.grid, found.micros, rank)
        return rank_memory(found, self.traits, self.job.recipe.optimizer, rank, held)

    @cached_property
    def peaks(self) -> list[float]:
        """Bytes of each pipeline rank at its fullest."""
        return [float(self.memory(rank).total[0]) for rank in range(self.job.plan.strategy.pp)]

    @property
    def usable_bytes(self) -> float:
        return usable_bytes(self.pool, self.traits)

    @cached_property
    def energy_j(self) -> float:
        """Of all chips over a step; a board never draws more than its limit."""
        chip, seconds = self.pool.chip, self.timeline.step_s
        ranks, power = self.job.plan.strategy.ranks, self.machine.profile.power
        free = float(self.figures.energy_j[0]) + ranks * power["active_w"] * seconds
        return min(free, ranks * chip.tdp_w * seconds)

    @property
    def flops(self) -> Mapping[str, float]:
        return {"model": float(self.figures.model_flops[0]), "again": float(self.figures.again_flops[0])}
