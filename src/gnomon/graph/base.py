"""A graph is the operators one rank runs in one step, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnomon.graph.ops import Op
from gnomon.spec.workload import Batch, Floats


@dataclass(frozen=True, slots=True)
class Graph:
    ops: tuple[Op, ...]

    def flops(self, batch: Batch) -> Floats:
        return np.asarray(np.sum([op.count * op.flops(batch) for op in self.ops], axis=0))

    def bytes(self, batch: Batch) -> Floats:
        return np.asarray(np.sum([op.count * op.bytes(batch) for op in self.ops], axis=0))

    def rewrite(self, change: Callable[[Op], tuple[Op, ...]]) -> Graph:
        """Each operator replaced by none, one or several: the form every pass has."""
        return Graph(tuple(new for op in self.ops for new in change(op)))
