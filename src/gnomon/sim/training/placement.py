"""Which part of the network each model chunk of each pipeline rank holds, and so who sends to whom."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Counts = int | Ints
"""One number of ranks, chunks or micro-batches, or an array of them."""


class ModelChunk(NamedTuple):
    """A model chunk of a rank."""

    rank: int
    chunk: int


class Placement:
    """Loop, as PyTorch calls it: chunk `c` of rank `r` is stage `c * pp + r` of the network."""

    name = "loop"
    copies = 1
    """Of the network, which the ranks hold together; each takes as many micro-batches."""

    def stages(self, pp: int, vp: int) -> Ints:
        """The stage of every chunk, [pp, chunks]: stages are numbered from the embedding to the head."""
        return np.arange(pp)[:, None] + pp * np.arange(vp)

    def has_first(self, pp: Counts, rank: Counts) -> Any:
        """Whether a rank holds the first stage."""
        return np.equal(rank, 0) & np.greater(pp, 0)

    def has_last(self, pp: Counts, rank: Counts) -> Any:
        return np.equal(rank, np.subtract(pp, 1))


class VShape(Placement):
    """Two chunks per rank: down the ranks with the first, and up again with the second."""

    name = "v"

    def stages(self, pp: int, vp: int) -> Ints:
        down = np.arange(pp)
        return np.stack([down, 2 * pp - 1 - down], axis=1)

    def has_last(self, pp: Counts, rank: Counts) -> Any:
        return self.has_first(pp, rank)


class Bidirectional(Placement):
    """Two copies of the network, one from the first rank to the last and one from the last to the first."""

    name = "bidirectional"
    copies = 2

    def stages(self, pp: int, vp: int) -> Ints:
        down = np.arange(pp)
        return np.stack([down, pp - 1 - down], axis=1)

    def has_first(self, pp: Counts, rank: Counts) -> Any:
        return np.equal(rank, 0) | np.equal(rank, np.subtract(pp, 1))

    def has_last(self, pp: Counts, rank: Counts) -> Any:
        return self.has_first(pp, rank)


LOOP, V, BIDIRECTIONAL = PLACEMENTS = (Placement(), VShape(), Bidirectional())


class Route(NamedTuple):
    """Where each chunk's activations come from and go to; gradients go the other way. None at the ends."""

    before: Mapping[ModelChunk, ModelChunk | None]
    after: Mapping[ModelChunk, ModelChunk | None]


@lru_cache(maxsize=256)
def route(placement: Placement, pp: int, vp: int) -> Route:
    stages = placement.stages(pp, vp)
    each = stages.shape[1] // placement.copies
    where = {
        (chunk // each, int(stages[rank, chunk])): ModelChunk(rank, chunk)
        for rank in range(pp)
        for chunk in range(stages.shape[1])
    }
    return Route(
        {spot: where.get((copy, stage - 1)) for (copy, stage), spot in where.items()},
        {spot: where.get((copy, stage + 1)) for (copy, stage), spot in where.items()},
    )
