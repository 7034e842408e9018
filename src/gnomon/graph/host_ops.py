"""Operators whose weights lie in the host's memory: their kernels read them over the link between chip and host, or
experts are copied ahead of their kernel, or computed by the host's processors where they lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gnomon.graph.dtypes import gemm_format
from gnomon.graph.ops import Experts, Gemm, visited_experts
from gnomon.graph.popularity import visit_shares
from gnomon.graph.sizes import Shape, Size, size_of
from gnomon.spec.workload import Batch, Floats

HOST_READ, HOST_EXPERTS = "host_read", "host_experts"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRates:
    """What one rank gets of its host while the others do the same; 0 where it is not used."""

    link_bytes_s: float
    """Of copies to the chip."""
    cpu_bytes_s: float
    """Of weights that processors read and multiply by a few rows."""
    cpu_flops_s: float
    handover_s: float
    """Until processors have a step's rows, and the chip what they made of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostExperts:
    """Experts of which the chip caches some: the others are copied to it, or computed by the host, beside it."""

    name: str
    op: Experts
    """One run (its count is 1) with all experts on the chip."""
    cached: int
    """Experts of a rank's layer that are on the chip."""
    skew: float
    """Exponent of the power law by which experts are chosen."""
    popular: bool
    """Whether the cached ones are those chosen most; else any."""
    copied: bool
    computed: bool
    """Whether the others may be copied, and whether the host may compute them; where both, whatever ends first."""
    rates: HostRates
    count: int = 1
    kind: Literal["host_experts"] = "host_experts"

    @property
    def dtype(self) -> str:
        return self.op.dtype

    @property
    def tokens(self) -> Size:
        """What its size follows."""
        return self.op.tokens

    def shape(self, batch: Batch) -> Shape:
        return self.op.shape(batch)

    def flops(self, batch: Batch) -> Floats:
        return self.op.flops(batch)

    def bytes(self, batch: Batch) -> Floats:
        """Of the chip's memory: the cached experts that are visited, with the rows of all."""
        return self.op.bytes(batch) - self.expert_bytes * self.missed(batch)

    @property
    def expert_bytes(self) -> float:
        """Of one expert's matrices on a rank."""
        return 3 * self.op.hidden * self.op.inner * gemm_format(self.op.dtype).weights

    @property
    def hit_rate(self) -> float:
        """Of all visits, those to cached experts."""
        if not self.popular:
            return self.cached / self.op.experts
        return min(float(sum(visit_shares(self.op.experts, self.op.topk, self.skew)[: self.cached])), 1.0)

    def missed(self, batch: Batch) -> Floats:
        """Experts visited that are not cached."""
        tokens = size_of(self.op.tokens, batch)
        shares = np.array(visit_shares(self.op.experts, self.op.topk, self.skew)) * self.op.topk
        one = -np.expm1(np.multiply.outer(tokens, np.log1p(-np.minimum(shares, 1 - 1e-12))))
        if self.popular:
            return np.asarray(one[..., self.cached :].sum(axis=-1))
        return np.asarray(one.sum(axis=-1) * (1 - self.cached / self.op.experts))

    @property
    def on_chip(self) -> Experts:
        """Those that are cached, with the visits to them."""
        return self._part(self.cached, self.hit_rate)

    @property
    def beyond(self) -> Experts:
        """The others, as the chip would run them."""
        return self._part(self.op.experts - self.cached, 1 - self.hit_rate)

    def _part(self, experts: int, visits: float) -> Experts:
        few = min(visits * self.op.topk, experts)
        return replace(self.op, experts=max(experts, 1), topk=few, count=self.count)  # type: ignore[arg-type]

    def host_s(self, batch: Batch) -> tuple[Floats, Floats]:
        """Seconds of one run in which every missed expert is copied, and in which the host computes all of them."""
        missed, rates = self.missed(batch), self.rates
        moved = missed * self.expert_bytes
        rows = size_of(self.op.tokens, batch) * self.op.topk * (1 - self.hit_rate)
        work = rows * 2 * 3 * self.op.hidden * self.op.inner
        copied = moved / rates.link_bytes_s
        computed = np.maximum(moved / rates.cpu_bytes_s, work / rates.cpu_flops_s)
        return np.asarray(copied), np.asarray(computed)


def shared_out(chip_s: Floats, more_s: Floats, copied_s: Floats, computed_s: Floats, op: HostExperts) -> Floats:
    """Seconds until chip, link and host's processors have ended, side by side: the chip takes `chip_s` for what it
    has, and `more_s` for all that is copied. Where both ways are open the missed experts are shared out so that the
    last to end does so soonest: a maximum of lines in the copied share, least about where two of them cross or at an
    end."""
    alone = np.maximum(chip_s + more_s, copied_s)
    if not op.computed:
        return alone
    late = np.where(computed_s > 0, op.rates.handover_s, 0.0)
    if not op.copied:
        return np.maximum(chip_s, computed_s + late)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = (computed_s / (computed_s + copied_s), (computed_s - chip_s) / (computed_s + more_s))
    shares = [np.zeros_like(chip_s), *(np.clip(np.nan_to_num(one), 0.0, 1.0) for one in crossings)]
    ends = [np.maximum.reduce([chip_s + f * more_s, f * copied_s, (1 - f) * computed_s + late]) for f in shares]
    return np.asarray(np.minimum.reduce([alone, *ends]))
