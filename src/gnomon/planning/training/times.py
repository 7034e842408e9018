"""A plan's figures as the times of its pipeline's tasks, and when each of them runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.engines.training import StepTable, Traits
from gnomon.engines.training.side import side_of_row
from gnomon.sim.training.timeline import Timeline, timeline
from gnomon.sim.training.times import StepTimes, without_communication
from gnomon.spec.workload import Floats


def step_times(found: StepTable, row: int, traits: Traits, *, compute_only: bool = False) -> StepTimes:
    """Seconds of every chunk of one plan; `compute_only` with free communication."""

    def chunks(name: str) -> Floats:
        return found.chunks.of_row(f"compute_only_{name}" if compute_only and name != "reduce_s" else name, row)

    layers = found.chunks.stages.counts(found.chunks.shape_of(row)).sum(axis=2)
    chosen = found.grid.schedule_of(row)
    halves: dict[str, Any] = {}
    if chosen.splits_backward:
        halves = {"input_s": chunks("input_s"), "weight_s": found.chunks.of_row("weight_s", row)}
    if chosen.overlaps and not compute_only:
        # The backward is of another chunk of the rank, and neither can hide more than it has.
        hidden = found.chunks.of_row("overlap_s", row)
        halves["overlap_s"] = np.broadcast_to(hidden.min(axis=1, keepdims=True), hidden.shape)
    times = StepTimes(
        forward_s=chunks("forward_s"),
        backward_s=chunks("backward_s"),
        **halves,
        forward_send_s=float(found.send_s[row]),
        backward_send_s=float(found.send_s[row]),
        blocking=traits.blocking_sends,
        reduce_s=chunks("reduce_s"),
        reduce_parts=np.maximum(layers, 1),
        overlap=bool(traits.overlaps(found.grid.pp[row])),
        optimizer_s=float(found.optimizer_s[row]),
        gather_s=float(found.gather_s[row]),
        side=side_of_row(found.chunks, found.side, row),
    )
    return without_communication(times) if compute_only else times


def step_timeline(found: StepTable, row: int, traits: Traits, *, compute_only: bool = False) -> Timeline:
    chosen, times = found.grid.schedule_of(row), step_times(found, row, traits, compute_only=compute_only)
    orders = chosen.tasks(int(found.grid.pp[row]), int(found.grid.vp[row]), int(found.micros[row]))
    return timeline(orders, times, chosen.placement)
