"""Operators with exact FLOPs and bytes. Shapes are functions of the batch; no hardware here.

Every operator takes arrays of batches at once. `count` is how often it runs in the step, and all
figures are of one run on one rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Union

import numpy as np

from gnomon.graph.dtypes import gemm_format, width
from gnomon.graph.mixer_ops import IndexScores, LatentDecode, MixerOp, Scan
from gnomon.graph.routing import TokenRouting, busiest, most_held, most_visited
from gnomon.graph.sizes import LOGITS, PREFILLS, PROMPT, TOKENS, Rows, Shape, Size, constants, rounded_up, size_of
from gnomon.graph.windows import Window
from gnomon.spec.workload import Batch, Floats

__all__ = [
    "LOGITS", "PREFILLS", "PROMPT", "TOKENS", "Attention", "Collective", "Convolution", "Elementwise", "Experts",
    "Gemm", "IndexScores", "LatentDecode", "Op", "Rows", "Scan", "SequenceAttention", "Shape", "Size",
    "size_of", "visited_experts",
]  # fmt: skip

if TYPE_CHECKING:
    from gnomon.graph.algebra import Algebra
    from gnomon.graph.host_ops import HostExperts, HostRead
    from gnomon.graph.source_attention import SourceAttention

ROW_BYTES = 16
"""Rows of matrices that begin at multiples of this suit every kernel; others go to kernels that copy value by value."""
FEW_CHANNELS = 8
"""Convolutions of fewer channels than this have kernels of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`batch` GEMMs of `m x k` by `k x n`, each operand read once."""

    name: str
    m: Size
    n: Size
    k: Size
    dtype: str
    batch: Size = 1
    out_dtype: str = "bf16"
    count: int = 1
    aligned: int = ROW_BYTES
    """Bytes of which the distance between two rows is a multiple, in the operands."""
    out_aligned: int = ROW_BYTES
    """Bytes of which the distance between two rows of the result is a multiple."""
    across: int = 0
    """Operands that do not lie along k, as of gradients by input (one) and by weight (two)."""
    separate: bool = False
    """The host launches each of the `batch`, on streams beside each other."""

    @property
    def launches(self) -> int:
        """Kernels that the host launches."""
        return self.count * (int(self.batch) if self.separate and isinstance(self.batch, int) else 1)

    @property
    def kind(self) -> Literal["gemm", "gemm_unaligned"]:
        return "gemm" if min(self.aligned, self.out_aligned) >= ROW_BYTES else "gemm_unaligned"

    def shape(self, batch: Batch) -> Shape:
        """With its layout only where that counts, so that the many others stay small."""
        beside = {"across": self.across} if gemm_format(self.dtype).inputs > 2 else {}
        if self.kind == "gemm_unaligned":
            beside |= {"aligned": self.aligned, "out_aligned": self.out_aligned}
        return self._sizes(batch) | constants(batch, **beside)

    def _sizes(self, batch: Batch) -> Shape:
        sizes = {"m": self.m, "n": self.n, "k": self.k, "batch": self.batch}
        return {name: size_of(size, batch) for name, size in sizes.items()}

    def flops(self, batch: Batch) -> Floats:
        m, n, k, gemms = self._sizes(batch).values()
        return 2.0 * gemms * m * n * k

    def bytes(self, batch: Batch) -> Floats:
        """None where it has no rows: then it does not run."""
        m, n, k, gemms = self._sizes(batch).values()
        sides = gemm_format(self.dtype)
        moved = m * k * sides.inputs + n * k * sides.weights + m * n * width(self.out_dtype)
        return (m > 0) * gemms * moved


def visited_experts(tokens: Floats, experts: Floats | float, topk: Floats | float) -> Floats:
    """Experts that get at least one token when tokens choose evenly: E (1 - (1 - k/E)^T)."""
    return np.asarray(experts * -np.expm1(tokens * np.log1p(-np.minimum(topk / experts, 1 - 1e-12))))


def non_local_bytes(hidden: Floats | float, inner: Floats | float, dtype: str) -> Floats | float:
    """Traffic of a row of a non-local expert: both GEMMs and a memset write zeros, which are activated and added up
    with the rest. Kernels of narrow activations skip such rows, and only the sum reads them."""
    return (hidden if gemm_format(dtype).inputs < width("bf16") else 3.0 * hidden + 5.0 * inner) * width("bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The gated feed-forward of the experts a step's tokens visit, with dispatch and sum.

    Spread over ranks, FLOPs and bytes are the mean rank's, timed sizes the busiest's, which all others wait for.
    """

    name: str
    tokens: Size
    """Of all ranks that share the experts."""
    hidden: int
    inner: int
    experts: int
    topk: int
    dtype: str
    ranks: int = 1
    sent: bool = False
    """Tokens are sent only to the ranks they chose; else every rank's kernel keeps a row for every choice of every
    token, and activates and adds up those of other ranks' experts with its own."""
    excess: float = 0.0
    """Of all visits, the share that the busiest rank gets beyond what it would where all experts are as popular."""
    padded_to: tuple[int, int] = (1, 1)
    """Multiples of inner and hidden channels that its kernel computes on, though the network has fewer."""
    count: int = 1
    kind: Literal["moe"] = "moe"

    @property
    def held(self) -> int:
        """Experts of the fullest rank."""
        return most_held(self.experts, self.ranks)

    def imbalance(self, batch: Batch) -> Floats:
        """Visits to the busiest rank's experts over those to the mean rank's."""
        mean = (tokens := size_of(self.tokens, batch)) * self.topk / self.ranks
        return self._busiest(tokens) / np.where(mean > 0, mean, 1.0)

    def _busiest(self, tokens: Floats) -> Floats:
        """Visits to the busiest rank's experts: a rank takes no more of a token than its experts and choices."""
        found = busiest(tokens, self.experts, self.topk, self.ranks)
        if not self.excess:
            return found
        more = found + tokens * self.topk * self.excess
        return np.asarray(np.clip(more, found, np.maximum(found, tokens * min(self.topk, self.held))))

    def shape(self, batch: Batch) -> Shape:
        """Of the busiest rank, as so many tokens that choose among its experts alone."""
        tokens, choices = size_of(self.tokens, batch), self.topk * self.held / self.experts
        inner, hidden = map(rounded_up, (self.inner, self.hidden), self.padded_to)
        sizes = constants(batch, hidden=hidden, inter=inner, experts=self.held, topk=choices)
        if self.ranks == 1:
            return {"tokens": tokens} | sizes
        visits, visited = self._busiest(tokens), most_visited(tokens, self.experts, self.topk, self.ranks)
        return {"tokens": visits / choices, "visited": visited, "absent": self._non_local_rows(batch)} | sizes

    def _non_local_rows(self, batch: Batch) -> Floats:
        """Rows of non-local experts."""
        return size_of(self.tokens, batch) * self.topk * (0 if self.sent else 1 - self.held / self.experts)

    def flops(self, batch: Batch) -> Floats:
        return 2.0 * 3 * size_of(self.tokens, batch) * self.topk * self.hidden * self.inner / self.ranks

    def bytes(self, batch: Batch) -> Floats:
        pairs = size_of(self.tokens, batch) * self.topk
        visited = visited_experts(size_of(self.tokens, batch), self.experts, self.topk)
        weights = visited * 3 * self.hidden * self.inner * gemm_format(self.dtype).weights
        own = (weights + pairs * (2 * self.hidden + 3 * self.inner) * width("bf16")) / self.ranks
        return own + self._non_local_rows(batch) * non_local_bytes(self.hidden, self.inner, self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention in one kernel: over a paged cache the decodes of a step or its prompt chunks, or over whole
    sequences forward, and backward to the gradients of queries, keys and values."""

    name: str
    phase: Literal["decode", "prefill", "forward", "backward"]
    heads: int
    kv_heads: int
    head_dim: int
    kv_dtype: str
    dtype: str = "bf16"
    count: int = 1
    value_dim: int | None = None
    """Channels of a value head that was unfolded from latents with its key: neither is written to a cache."""
    window: Window | None = None
    capped: bool = False
    """Scores pass through a soft cap before the softmax."""
    efficiency: float = 1.0
    """Throughput of its forward kernel relative to the profile's."""

    @property
    def kind(self) -> str:
        return f"attention_{self.phase}"

    @property
    def values(self) -> int:
        return self.head_dim if self.value_dim is None else self.value_dim

    def shape(self, batch: Batch) -> Shape:
        """Sums over the sequences, since a batch is known by its sums."""
        heads = constants(batch, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)
        if self.phase == "decode":
            sums = {"sequences": batch.decodes, "context": self._context(batch)}
            sums["beyond"] = batch.decode_context - sums["context"]
            return sums | heads | constants(batch, value_dim=self.values)
        sums = {"sequences": batch.prefills, "tokens": batch.prefill_tokens, "pairs": self._pairs(batch)}
        sums |= {"context": self._context(batch)} | heads
        if self.phase != "prefill":
            return sums | (constants(batch, efficiency=self.efficiency) if self.efficiency != 1 else {})
        sums["beyond"] = batch.prefill_pairs - sums["pairs"]
        reach = self.window.length if self.window else np.inf
        written = float(self.value_dim is None)
        return sums | constants(batch, value_dim=self.values, window=reach, bends=1 + self.capped, written=written)

    def flops(self, batch: Batch) -> Floats:
        """Two matmuls forward; backward the recomputed scores and four more."""
        wide, narrow = (3, 2) if self.phase == "backward" else (1, 1)
        return 2.0 * self._pairs(batch) * self.heads * (wide * self.head_dim + narrow * self.values)

    def bytes(self, batch: Batch) -> Floats:
        """Forward the queries, keys and values are read and the output written; backward all of them and the output's
        gradient are read, and three gradients written."""
        new = batch.decodes if self.phase == "decode" else batch.prefill_tokens
        passes = 2.0 if self.phase == "backward" else 1.0
        channels = passes * (self.head_dim + self.values)
        cached = self._context(batch) * self.kv_heads * channels * width(self.kv_dtype)
        return cached + new * self.heads * channels * width(self.dtype)

    def bends(self, longest: int) -> tuple[int, ...]:
        """Cached tokens at which its time over the context bends."""
        return self.window.bends(longest) if self.window else ()

    def _context(self, batch: Batch) -> Floats:
        if self.phase == "decode":
            return self.window.decode_context(batch) if self.window else batch.decode_context
        return self.window.prefill_context(batch) if self.window else batch.prefill_context

    def _pairs(self, batch: Batch) -> Floats:
        if self.phase == "decode":
            return self._context(batch)
        return self.window.prefill_pairs(batch) if self.window else batch.prefill_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceAttention:
    """Softmax attention over whole sequences of any two lengths, whatever the batch: what a traced module calls."""

    name: str
    phase: Literal["forward", "backward"]
    sequences: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int
    causal: bool
    dtype: str
    mask_bytes: float = 0.0
    """Of the numbers that are added to the scores."""
    efficiency: float = 1.0
    """Throughput of its kernel relative to FlashAttention's."""
    count: int = 1

    @property
    def kind(self) -> str:
        return f"attention_{self.phase}"

    @property
    def pairs(self) -> float:
        """Of queries and keys of one sequence. Causal ones line up at the first token, as PyTorch has it."""
        if not self.causal:
            return float(self.queries * self.keys)
        seen = min(self.queries, self.keys)
        return seen * (seen + 1) / 2 + (self.queries - seen) * self.keys

    def shape(self, batch: Batch) -> Shape:
        n = self.sequences
        sums = constants(
            batch,
            sequences=n,
            tokens=n * self.queries,
            pairs=n * self.pairs,
            context=n * self.keys,
            efficiency=self.efficiency,
        )
        return sums | constants(batch, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)

    def flops(self, batch: Batch) -> Floats:
        """Two matmuls forward; backward the recomputed scores, then the gradients of queries, keys, values and
        scores."""
        wide, narrow = (1, 1) if self.phase == "forward" else (3, 2)
        once = wide * self.head_dim + narrow * self.value_dim
        return np.full(batch.size, 2.0 * once * self.sequences * self.heads * self.pairs)

    def bytes(self, batch: Batch) -> Floats:
        queries = self.sequences * self.heads * self.queries
        keys = self.sequences * self.kv_heads * self.keys
        passes = 1.0 if self.phase == "forward" else 2.0
        values = passes * (queries + keys) * (self.head_dim + self.value_dim) * width(self.dtype)
        return np.full(batch.size, values + passes * self.mask_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution, or its gradient by input or by weight, as an implicit GEMM in each group.

    Operands are read once: the left operand is made on the fly from an input that is smaller than it.
    """

    name: str
    m: float
    n: float
    k: float
    groups: int
    moved: float
    """Bytes read and written."""
    dtype: str
    count: int = 1
    way: Literal["forward", "by_input", "by_weight"] = "forward"
    channels: int = ROW_BYTES
    """The fewest channels of a group, on either side: kernels want whole vectors of them."""
    turned: float = 0.0
    """Bytes that lie channels first, and that kernels for channels last turn before or after."""
    turned_weights: float = 0.0
    """Bytes of weights, or of their gradient, that lie channels first."""

    @property
    def kind(self) -> Literal["conv", "conv_few", "conv_depthwise"]:
        if self.groups > 1 and self.channels < FEW_CHANNELS:
            return "conv_depthwise"
        return "conv_few" if self.channels < FEW_CHANNELS else "conv"

    def shape(self, batch: Batch) -> Shape:
        ways = {way: float(self.way == way) for way in ("by_input", "by_weight")}
        sizes = {"m": self.m, "n": self.n, "k": self.k, "batch": self.groups, "bytes": self.moved}
        return constants(batch, **sizes, **ways, turned=self.turned, turned_weights=self.turned_weights)

    def flops(self, batch: Batch) -> Floats:
        return np.full(batch.size, 2.0 * self.m * self.n * self.k * self.groups)

    def bytes(self, batch: Batch) -> Floats:
        return np.full(batch.size, self.moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """Anything that streams memory: norms, activations, rotary embedding, cache writes, sampling."""

    name: str
    rows: Size
    read_per_row: float
    written_per_row: float
    dtype: str = "bf16"
    count: int = 1
    efficiency: float = 1.0
    """Throughput of its kernel relative to a plain one; strided and mixed-format ones are slower."""
    cached: bool = True
    """Whether it is faster on data in L2: a kernel bound by its own instructions is not."""
    by_row: bool = False
    """Whether one thread block takes a whole row, as norms and fused activations of serving engines do."""
    narrows: str = ""
    """The format of the GEMM whose inputs it narrows, where it does no more than that."""
    kind: Literal["elementwise"] = "elementwise"

    def shape(self, batch: Batch) -> Shape:
        rows = size_of(self.rows, batch)
        moved = {"bytes_read": rows * self.read_per_row, "bytes_written": rows * self.written_per_row}
        row_bytes = (self.read_per_row + self.written_per_row) * self.by_row
        return moved | constants(batch, efficiency=self.efficiency, cached=self.cached, row_bytes=row_bytes)

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
    stride: int = 1
    """How many chips apart the group's ranks stand: 1 for neighbours."""
    dtype: str = "bf16"
    count: int = 1
    routed: TokenRouting | None = None
    """Of tokens on their way to experts and back, where a token crosses to another node once for all it visits there;
    rows and bytes still count a copy for each expert."""

    @property
    def kind(self) -> str:
        return self.op

    def shape(self, batch: Batch) -> Shape:
        more = self.routed.shape if self.routed else {}
        return {"bytes": size_of(self.rows, batch) * self.bytes_per_row} | constants(
            batch, ranks=self.ranks, stride=self.stride, **more
        )

    def flops(self, batch: Batch) -> Floats:
        return np.zeros(batch.size)

    def bytes(self, batch: Batch) -> Floats:
        return size_of(self.rows, batch) * self.bytes_per_row


Op = Union[
    Gemm, Experts, Attention, SequenceAttention, MixerOp, Convolution, Elementwise, Collective,
    "Algebra", "SourceAttention", "HostRead", "HostExperts",
]  # fmt: skip
