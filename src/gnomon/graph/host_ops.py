"""Operators whose weights lie in the host's memory: their kernels read them over the link between chip and host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gnomon.graph.dtypes import gemm_format
from gnomon.graph.ops import Experts, Gemm, visited_experts
from gnomon.graph.sizes import Shape, Size, size_of
from gnomon.spec.workload import Batch, Floats

HOST_READ = "host_read"
READ_ROWS = 256
"""Rows of activations that are multiplied by a weight as it passes: kernels of an H200 work on clusters of two tiles of
128 rows, and no cache keeps what they read from the host for the next. GEMMs of 512, 2,048 and 8,192 rows took 2.0, 7.9
and 32 times as long as those of 128 at the median (measurements/h200-2026-11-18-weight-offload/host_reads.csv)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRead:
    """A GEMM, or experts, with a share of its weights in pinned memory of the host."""

    name: str
    op: Gemm | Experts
    """One run of the operator (its count is 1) with all weights on the chip."""
    share: float = 1.0
    """Of its weights that the host holds."""
    readers: int = 1
    """Ranks on one host that read at once."""
    count: int = 1
    kind: Literal["host_read"] = "host_read"

    @property
    def alone(self) -> Gemm | Experts:
        """The same with its weights on the chip."""
        return replace(self.op, count=self.count)

    @property
    def dtype(self) -> str:
        return self.op.dtype

    @property
    def rows(self) -> Size:
        """What its size follows."""
        return self.op.m if isinstance(self.op, Gemm) else self.op.tokens

    def shape(self, batch: Batch) -> Shape:
        return self.op.shape(batch)

    def flops(self, batch: Batch) -> Floats:
        return self.op.flops(batch)

    def bytes(self, batch: Batch) -> Floats:
        return self.op.bytes(batch)

    def reads(self, batch: Batch) -> Floats:
        """How often a run reads its weights: once for every `READ_ROWS` rows, of experts by the rows of each."""
        if isinstance(self.op, Gemm):
            return np.asarray(np.ceil(size_of(self.op.m, batch) / READ_ROWS))
        tokens = size_of(self.op.tokens, batch)
        visited = np.maximum(visited_experts(tokens, self.op.experts, self.op.topk), 1.0)
        return np.asarray(np.ceil(tokens * self.op.topk / visited / READ_ROWS))

    def host_bytes(self, batch: Batch) -> Floats:
        """Bytes of one read over the link: all of a matrix, and of experts those that the step's tokens visit."""
        return self.share * weight_bytes(self.op, batch)


def weight_bytes(op: Gemm | Experts, batch: Batch) -> Floats:
    """Bytes of weights that one run reads; none where it has no rows."""
    each = gemm_format(op.dtype).weights
    if isinstance(op, Gemm):
        m, n, k, gemms = (size_of(size, batch) for size in (op.m, op.n, op.k, op.batch))
        return _running(m) * n * k * gemms * each
    visited = visited_experts(size_of(op.tokens, batch), op.experts, op.topk)
    return visited * 3 * op.hidden * op.inner * each / op.ranks


def _running(rows: Floats) -> Floats:
    """1 where there are rows, else 0."""
    return (rows > 0).astype(float)
