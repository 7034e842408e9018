"""Training steps of drawn sequences: their micro-batches take unequally long, and data-parallel ranks wait for the
slowest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnomon.engines.training import Grid, StepTable, Traits, figures
from gnomon.engines.training.batches import EachRow, RowBatches
from gnomon.engines.training.case import TrainingCase, exactly
from gnomon.engines.training.grid import Ints
from gnomon.planning.training.times import step_timeline
from gnomon.sim.training.base import Orders
from gnomon.sim.training.placement import Placement
from gnomon.sim.training.uneven import SAVED, SEND_B, SEND_F, pipeline_s
from gnomon.spec.estimate import DRAWS
from gnomon.spec.loads.micro_batches import MicroBatches, places
from gnomon.spec.workload import Floats
from gnomon.techniques.plans import TrainingTechniques

MOST_SECONDS = 10_000_000
"""Tasks of a pipeline times drawn steps and ranks that are timed; of more, the ranks with most work alone."""
MOST_TASKS = 20_000
"""Of a step that is timed task by task. In a longer one, a stage's own micro-batches decide how much longer it takes
than one of equal micro-batches."""


@dataclass(frozen=True, slots=True, eq=False)
class DrawnSteps:
    """Seconds of the passes of every drawn step, on its slowest rank."""

    pipeline_s: Floats

    def beyond(self, balanced_s: float) -> float:
        """What the mean of them takes beyond a step of equal micro-batches, which is never above it: a step is the
        longest of many paths, and the mean of a maximum is no less than the maximum of means."""
        return max(float(np.mean(self.pipeline_s)) - balanced_s, 0.0)

    @property
    def of_draws(self) -> Floats:
        """One step for each draw of an interval."""
        return np.resize(self.pipeline_s, DRAWS)


def drawn_steps(
    case: TrainingCase, applied: TrainingTechniques, plan: StepTable, known: dict[tuple[int, ...], Any] | None = None
) -> DrawnSteps | None:
    """Drawn steps of the only plan of a table; none where all its micro-batches take equally long. `known` keeps what
    other plans of a search may use."""
    grid, traits = plan.grid, case.traits
    cp, dp = int(grid.cp[0]), int(grid.dp[0])
    drawn = RowBatches(case.model, case.load, grid).drawn(0, cp)
    nodes = drawn.nodes
    if nodes.work.size == 1:
        return None
    rows = EachRow(micro_batches=True, known=known)
    each = grid.pick(np.zeros(nodes.work.size, np.int64))
    found = figures(case.model, case.load, each, case.machine, traits, case.optimizer, case.dtype, rows)
    found = applied.costs(found, replace(case, drawn=exactly).at(found)) if applied else found
    work = work_of_ranks(drawn, dp, int(in_step(grid, traits)[0]))
    timed = TimedNodes(nodes.work, found)
    if int(grid.pp[0]) == 1:
        return DrawnSteps(timed.alone(work).max(axis=1))
    chosen = grid.schedule_of(0)
    orders = chosen.tasks(int(grid.pp[0]), int(grid.vp[0]), int(plan.micros[0]))
    if (tasks := sum(map(len, orders))) > MOST_TASKS:
        line = step_timeline(plan, 0, traits)
        more = timed.stages(work).max(axis=(1, 2)) - float(line.busy_s.max())
        return DrawnSteps(np.maximum(line.pipeline_s + more, 0.0))
    ranks = int(np.clip(MOST_SECONDS // (tasks * work.shape[0]), 1, work.shape[1]))
    heaviest = np.argsort(-work.sum(axis=2), axis=1, kind="stable")[:, :ranks]
    work = np.take_along_axis(work, heaviest[:, :, None], axis=1)
    seconds = timed.pipeline_s(orders, chosen.placement, work.reshape(-1, work.shape[2]), traits.blocking_sends)
    return DrawnSteps(seconds.reshape(work.shape[:2]).max(axis=1))


def work_of_ranks(drawn: MicroBatches, dp: int, together: int) -> Floats:
    """The work of every micro-batch; of ranks that wait for each other in each, of the one with most:
    [steps, ranks, each]."""
    work = drawn.work[drawn.on_ranks(dp)]
    return np.asarray(work.reshape(work.shape[0], dp // together, together, -1).max(axis=2))


class TimedNodes:
    """A few micro-batches of a plan by their work, with the times of every task that each has; they are the rows of a
    table."""

    def __init__(self, work: Floats, found: StepTable) -> None:
        shape, rows, chosen = found.chunks.shape_of(0), np.arange(work.size), found.grid.schedule_of(0)
        named = {"F": "forward_s", "B": "backward_s"}
        named |= {"I": "input_s", "W": "weight_s"} if chosen.splits_backward else {}
        self.work = work
        self.seconds = {kind: found.chunks.of_rows(name, shape, rows) for kind, name in named.items()}
        self.pp, self.chunks = self.seconds["F"].shape[1:]
        same = self.seconds["F"].shape
        if chosen.overlaps:
            hidden = found.chunks.of_rows("overlap_s", shape, rows).min(axis=2, keepdims=True)
            self.seconds[SAVED] = np.broadcast_to(hidden, same)
        sent = np.broadcast_to(found.send_s[:, None, None], same)
        self.seconds |= {SEND_F: sent, SEND_B: sent}

    def stages(self, work: Floats) -> Floats:
        """Seconds of all passes of every pipeline rank, of micro-batches in the last axis: [steps, ranks, pp]."""
        right, share = places(self.work, work)
        halves = self.seconds["I"] + self.seconds["W"] if "I" in self.seconds else self.seconds["B"]
        each = (self.seconds["F"] + halves).sum(axis=2)
        return np.stack([between(each[:, rank], right, share).sum(axis=-1) for rank in range(self.pp)], axis=-1)

    def alone(self, work: Floats) -> Floats:
        """Of a step without a pipeline: [steps, ranks]."""
        each = (self.seconds["F"] + self.seconds["B"]).sum(axis=(1, 2))
        return np.asarray(between(each, *places(self.work, work)).sum(axis=-1))

    def pipeline_s(self, orders: Orders, placement: Placement, work: Floats, blocking: bool) -> Floats:
        """Of pipelines, each with the micro-batches of a row of `work`."""
        right, share = places(self.work, work)
        copies, micros = placement.copies, work.shape[1] // placement.copies

        def lasting(kind: str, rank: int, chunk: int, micro: int) -> Floats:
            place = micro + chunk * copies // self.chunks * micros
            return between(self.seconds[kind][:, rank, chunk], right[:, place], share[:, place])

        return pipeline_s(orders, (self.pp, self.chunks, micros), lasting, placement, blocking=blocking)


def between(seconds: Floats, right: Ints, share: Floats) -> Floats:
    """Seconds of micro-batches that lie between two nodes."""
    return np.asarray(seconds[right - 1] * (1 - share) + seconds[right] * share)


def in_step(grid: Grid, traits: Traits) -> Ints:
    """Data-parallel ranks that wait for each other in every micro-batch, of every plan: those that gather weights or
    scatter gradients of each layer in every pass, or exchange tokens for experts."""
    scattered = (grid.zero == 2) & ~((grid.pp > 1) & traits.whole_sums)
    across = -(-grid.ep * grid.expert_tp // (grid.tp * grid.cp))
    across = np.where(grid.dp % across, grid.dp, across)
    return np.where((grid.zero == 3) | scattered, grid.dp, across)
