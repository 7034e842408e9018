"""Dense linear algebra other than GEMMs: factorisations, solves, transforms, by textbook counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnomon.graph.sizes import Shape, constants
from gnomon.spec.workload import Batch, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Algebra:
    """FLOPs, bytes that have to move, and steps of which each waits for the one before."""

    name: str
    work: float
    """FLOPs of all matrices together."""
    moved: float
    """Bytes read and written, with every pass that no block of columns can share."""
    steps: float = 0.0
    """The chain of columns, in units of a Cholesky factorisation's."""
    dtype: str = "fp32"
    count: int = 1
    kind: Literal["algebra"] = "algebra"

    def shape(self, batch: Batch) -> Shape:
        return constants(batch, flops=self.work, bytes=self.moved, steps=self.steps)

    def flops(self, batch: Batch) -> Floats:
        return np.full(batch.size, self.work)

    def bytes(self, batch: Batch) -> Floats:
        return np.full(batch.size, self.moved)
