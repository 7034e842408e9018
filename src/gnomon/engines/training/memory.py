"""Bytes of a rank of a pipeline at the fullest moment of a step, for every plan of a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.engines.training.figures import Figures
from gnomon.engines.training.grid import Ints
from gnomon.engines.training.traits import Traits
from gnomon.spec.training import SCHEDULES
from gnomon.spec.workload import Floats

GATHERED_LAYERS = 2
"""With ZeRO 3, whole layers at once: the one that runs and the one that is gathered ahead."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankMemory:
    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    """What stays between the forwards and backwards of the micro-batches in flight."""
    buffers: Floats
    """Of what stages receive."""
    working: Floats
    """What the fullest operator needs beside that."""

    @property
    def total(self) -> Floats:
        states = self.weights + self.gradients + self.optimizer
        return states + self.activations + self.buffers + self.working


def rank_parameters(found: Figures, rank: Ints | int) -> Floats:
    grid = found.grid
    first, last = np.equal(rank, 0), np.equal(rank, grid.pp - 1)
    own = grid.vp * found.layers * found.parameters
    return np.asarray(own + first * found.first_parameters + last * found.last_parameters)


def rank_memory(found: Figures, traits: Traits, optimizer: str, rank: Ints | int, in_flight: Floats) -> RankMemory:
    """The parts of one rank. `in_flight` is how many chunk passes the rank holds at its fullest."""
    grid, states = found.grid, traits.optimizers[optimizer]
    parameters = rank_parameters(found, rank)
    last = np.equal(rank, grid.pp - 1)
    ends = np.equal(rank, 0) * found.first_parameters + last * found.last_parameters
    gathered = GATHERED_LAYERS * found.parameters + ends
    at_rest = states.sharded_weight_bytes * parameters / grid.dp
    weights = np.select(
        [grid.zero == 3, grid.zero == 2],
        [at_rest + states.weight_bytes * gathered, at_rest + states.weight_bytes * parameters],
        states.weight_bytes * parameters,
    )
    one = states.gradient_bytes * np.maximum(found.parameters, ends)
    shared = (grid.zero >= 2) & ~((grid.pp > 1) & traits.whole_sums)
    gradients = states.gradient_bytes * np.where(shared, parameters / grid.dp, parameters)
    # A head runs backward right after its forward, but for GPipe, which takes all micro-batches forward first.
    heads = np.where(grid.schedule == SCHEDULES.index("gpipe"), found.micros, 1)
    neighbours = 2 * grid.vp - np.equal(rank, 0) - last
    return RankMemory(
        weights=weights,
        gradients=gradients + np.where(shared, one, 0.0),
        optimizer=states.state_bytes * np.where(grid.zero >= 1, parameters / grid.dp, parameters),
        activations=in_flight * found.layers * found.kept_bytes + last * (heads - 1) * found.head_kept_bytes,
        buffers=neighbours * found.buffer_bytes,
        working=np.maximum(found.layer_peak_bytes, last * (found.head_kept_bytes + found.head_peak_bytes)),
    )
