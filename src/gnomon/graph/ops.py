"""Operators with exact FLOPs and bytes. Shapes are functions of the batch; no hardware here.

Every operator answers for arrays of batches at once. `count` is how often it runs in the step, and all
figures are of one run on one rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnomon.graph.dtypes import width
from gnomon.spec.workload import Batch, Floats


@dataclass(frozen=True, slots=True)
class Rows:
    """A size that follows the batch: one of its figures, times a factor."""

    of: Literal["tokens", "logit_rows"]
    factor: float = 1.0


Size = int | Rows
TOKENS = Rows("tokens")
LOGITS = Rows("logit_rows")


Shape = dict[str, Floats]
"""Sizes of one operator for many steps, under the column names of an operator table."""


def _constants(batch: Batch, **sizes: float) -> Shape:
    return {name: np.full(batch.size, float(size)) for name, size in sizes.items()}


def size_of(size: Size, batch: Batch) -> Floats:
    """A size for every step of the batch."""
    if isinstance(size, Rows):
        figure: Floats = getattr(batch, size.of)
        return figure * size.factor
    return np.full(batch.size, float(size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`m x k` by `k x n`. The second operand is a weight, read once."""

    name: str
    m: Size
    n: Size
    k: Size
    dtype: str
    out_dtype: str = "bf16"
    count: int = 1
    kind: Literal["gemm"] = "gemm"

    def shape(self, batch: Batch) -> Shape:
        return {"m": size_of(self.m, batch), "n": size_of(self.n, batch), "k": size_of(self.k, batch)}

    def flops(self, batch: Batch) -> Floats:
        m, n, k = self.shape(batch).values()
        return 2.0 * m * n * k

    def bytes(self, batch: Batch) -> Floats:
        m, n, k = self.shape(batch).values()
        return (m * k + n * k) * width(self.dtype) + m * n * width(self.out_dtype)


def visited_experts(tokens: Floats, experts: Floats | float, topk: Floats | float) -> Floats:
    """Experts that get at least one token when tokens choose evenly: E (1 - (1 - k/E)^T)."""
    return np.asarray(experts * -np.expm1(tokens * np.log1p(-np.minimum(topk / experts, 1 - 1e-12))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The gated feed-forward of the experts a step's tokens visit, with dispatch and sum."""

    name: str
    tokens: Size
    hidden: int
    inner: int
    experts: int
    topk: int
    dtype: str
    count: int = 1
    kind: Literal["moe"] = "moe"

    def shape(self, batch: Batch) -> Shape:
        sizes = _constants(batch, hidden=self.hidden, inter=self.inner, experts=self.experts, topk=self.topk)
        return {"tokens": size_of(self.tokens, batch)} | sizes

    def flops(self, batch: Batch) -> Floats:
        return 2.0 * 3 * size_of(self.tokens, batch) * self.topk * self.hidden * self.inner

    def bytes(self, batch: Batch) -> Floats:
        pairs = size_of(self.tokens, batch) * self.topk
        visited = visited_experts(size_of(self.tokens, batch), self.experts, self.topk)
        weights = visited * 3 * self.hidden * self.inner * width(self.dtype)
        return weights + pairs * (2 * self.hidden + 3 * self.inner) * width("bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention over a paged cache: the decodes of a step, or its prompt chunks."""

    name: str
    phase: Literal["decode", "prefill"]
    heads: int
    kv_heads: int
    head_dim: int
    kv_dtype: str
    dtype: str = "bf16"
    count: int = 1

    @property
    def kind(self) -> str:
        return f"attention_{self.phase}"

    def shape(self, batch: Batch) -> Shape:
        """Sums over the sequences, since a batch is known by its sums."""
        heads = _constants(batch, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)
        if self.phase == "decode":
            return {"sequences": batch.decodes, "context": batch.decode_context} | heads
        sums = {"sequences": batch.prefills, "tokens": batch.prefill_tokens, "pairs": batch.prefill_pairs}
        return sums | {"context": batch.prefill_context} | heads

    def flops(self, batch: Batch) -> Floats:
        pairs = batch.decode_context if self.phase == "decode" else batch.prefill_pairs
        return 4.0 * pairs * self.heads * self.head_dim

    def bytes(self, batch: Batch) -> Floats:
        cached = batch.decode_context if self.phase == "decode" else batch.prefill_context
        new = batch.decodes if self.phase == "decode" else batch.prefill_tokens
        values = 2.0 * cached * self.kv_heads * self.head_dim * width(self.kv_dtype)
        return values + 2.0 * new * self.heads * self.head_dim * width(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """Anything that streams memory: norms, activations, rotary embedding, cache writes, sampling."""

    name: str
    rows: Size
    read_per_row: float
    written_per_row: float
    dtype: str = "bf16"
    count: int = 1
    kind: Literal["elementwise"] = "elementwise"

    def shape(self, batch: Batch) -> Shape:
        rows = size_of(self.rows, batch)
        return {"bytes_read": rows * self.read_per_row, "bytes_written": rows * self.written_per_row}

    def flops(self, batch: Batch) -> Floats:
        return np.zeros(batch.size)

    def bytes(self, batch: Batch) -> Floats:
        return size_of(self.rows, batch) * (self.read_per_row + self.written_per_row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Bytes exchanged among the ranks of a group, counted as nccl-tests counts them."""

    name: str
    op: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
    rows: Size
    bytes_per_row: float
    ranks: int
    dtype: str = "bf16"
    count: int = 1

    @property
    def kind(self) -> str:
        return self.op

    def shape(self, batch: Batch) -> Shape:
        return {"bytes": size_of(self.rows, batch) * self.bytes_per_row} | _constants(batch, ranks=self.ranks)

    def flops(self, batch: Batch) -> Floats:
        return np.zeros(batch.size)

    def bytes(self, batch: Batch) -> Floats:
        return size_of(self.rows, batch) * self.bytes_per_row


Op = Gemm | Experts | Attention | Elementwise | Collective
