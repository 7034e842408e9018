"""What the busiest rank of a pipeline takes at least."""

from __future__ import annotations

import numpy as np

from gnomon.engines.training import StepTable
from gnomon.engines.training.grid import Ints
from gnomon.engines.training.stages import PipelineShape
from gnomon.sim.training.placement import PLACEMENTS
from gnomon.spec.workload import Floats


def busiest_s(found: StepTable) -> Floats:
    """A lower bound on the pipeline time: the way to the busiest rank, all its tasks, and the way back."""
    longest = np.zeros(found.grid.size)
    for shape, rows in found.chunks.groups:
        there, back = _bodies(found, shape, rows)
        whole_back = ~found.grid.splits[rows, None]
        way = (there + back * whole_back[:, :, None])[:, :, 0] * (shape.stages[:, 0] == np.arange(shape.pp))
        sends = np.arange(shape.pp) * (1 + whole_back) * found.send_s[rows, None]
        before = np.concatenate([np.zeros((rows.size, 1)), np.cumsum(way, axis=1)[:, :-1]], axis=1)
        each = found.micros[rows, None] / found.grid.stage_copies[rows, None]
        whole = before + sends + each * (there + back).sum(axis=2)
        if PLACEMENTS[shape.placement].copies > 1:  # other ranks begin with micro-batches of their own
            whole = each * (there + back).sum(axis=2)
        longest[rows] = whole.max(axis=1)
    return longest


def _bodies(found: StepTable, shape: PipelineShape, rows: Ints) -> tuple[Floats, Floats]:
    """Seconds of every chunk forward and backward, at least: whole or in halves, and with what overlapping saves."""
    named = ("forward_s", "backward_s", "input_s", "weight_s", "overlap_s")
    there, whole, by_input, by_weight, hidden = (found.chunks.bodies(name, shape, rows) for name in named)
    some = found.grid.pick(rows)
    overlaps = some.by_schedule(lambda one, _: one.overlaps)[:, None, None] > 0
    halves = np.where(overlaps, np.minimum(whole, by_input + by_weight) - hidden, by_input + by_weight)
    return there, np.where(some.splits[:, None, None], halves, whole)
