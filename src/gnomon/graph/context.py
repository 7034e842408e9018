"""Context parallelism as passes over a graph: sequences, or their cache, spread over ranks.

Each pass takes the operators of a rank that has whole sequences to those of one of `ranks` that share them, for the
same batch. `ring` and `all_to_all` spread the tokens of prompts; `decode_context` the cache of sequences that all ranks
compute, as vLLM does inside a tensor-parallel group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from gnomon.errors import InputError
from gnomon.graph.base import Graph
from gnomon.graph.dtypes import width
from gnomon.graph.lowering.site import STATE
from gnomon.graph.ops import TOKENS, Attention, Collective, Elementwise, Hidden, Op, Rows, Shape
from gnomon.spec.workload import Batch, Floats

WHOLE = ("prefill", "forward")
LSE = "fp32"
"""Format of the logarithm of a softmax's sum, one for each token and head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartAttention(Attention):
    """Attention of one rank to its part of a step: shares of the new tokens, of the query-key pairs and of the cached
    tokens."""

    token_share: float = 1.0
    pair_share: float = 1.0
    context_share: float = 1.0

    def _own(self, batch: Batch) -> Batch:
        return replace(
            batch,
            decode_context=batch.decode_context * self.context_share,
            prefill_tokens=batch.prefill_tokens * self.token_share,
            prefill_pairs=batch.prefill_pairs * self.pair_share,
            prefill_context=batch.prefill_context * self.context_share,
        )

    def shape(self, batch: Batch) -> Shape:
        return Attention.shape(self, self._own(batch))

    def flops(self, batch: Batch) -> Floats:
        return Attention.flops(self, self._own(batch))

    def bytes(self, batch: Batch) -> Floats:
        return Attention.bytes(self, self._own(batch))


def _part(op: Attention, **shares: float) -> PartAttention:
    """The same kernel on a part of its step."""
    known: dict[str, Any] = {field.name: getattr(op, field.name) for field in fields(op)}
    return PartAttention(**known | shares)


def ring(graph: Graph, ranks: int, stride: int = 1) -> Graph:
    """Keys and values go round: each rank attends to one piece of them while the next arrives.

    Every rank holds one piece from the front of a sequence and its mirror image from the back, so that all have the
    same share of the causal pairs (the zig-zag cut), and so has every turn.
    """

    def change(op: Op) -> tuple[Op, ...]:
        if not isinstance(op, Attention) or op.phase not in WHOLE:
            return (_parted(op, ranks),)
        turn = _part(op, token_share=1 / ranks, pair_share=1 / ranks**2, context_share=1 / ranks)
        size = 2 * op.kv_heads * op.head_dim * width(op.kv_dtype)
        piece = Collective(
            name=f"{op.name}.ring",
            op="send_recv",
            rows=Rows("prefill_context", 1 / ranks),
            bytes_per_row=size,
            ranks=2,
            stride=stride,
        )
        passed = Hidden(hidden=piece, behind=replace(turn, count=1), count=op.count * (ranks - 1))
        return replace(turn, count=op.count * ranks), passed

    return graph if ranks == 1 else graph.rewrite(change)


def all_to_all(graph: Graph, ranks: int, stride: int = 1) -> Graph:
    """Heads for tokens (Ulysses): before attention each rank gives away its tokens' other heads for the other tokens of
    its own heads, and gives the result back after it."""

    def change(op: Op) -> tuple[Op, ...]:
        if not isinstance(op, Attention) or op.phase not in WHOLE:
            return (_parted(op, ranks),)
        if op.heads % ranks or op.kv_heads % ranks:
            raise InputError(
                f"{op.heads} heads over {op.kv_heads} of keys and values do not spread evenly over {ranks} ranks",
                where="cp",
                hint=f"Use a divisor of {op.kv_heads}.",
            )
        queries = op.heads * op.head_dim * width(op.dtype)
        keys = 2 * op.kv_heads * op.head_dim * width(op.dtype)
        own = replace(op, heads=op.heads // ranks, kv_heads=op.kv_heads // ranks)

        def swap(name: str, size: float) -> Collective:
            return Collective(
                name=f"{op.name}.{name}",
                op="all_to_all",
                rows=Rows("prefill_tokens", 1 / ranks),
                bytes_per_row=size,
                ranks=ranks,
                stride=stride,
                count=op.count,
            )

        return swap("scatter_heads", queries + keys), own, swap("gather_heads", queries)

    return graph if ranks == 1 else graph.rewrite(change)


def decode_context(graph: Graph, ranks: int) -> Graph:
    """The cache of each head spread over `ranks` neighbours that hold the same key-value head.

    All queries of the group look at a rank's share of the cache; what they find is weighed by its softmax's sum
    and added up, each rank keeping its own heads, and merged with what they see of the step's new tokens. Prompts
    do the same work as without it: fewer cached tokens, for more heads.
    """

    def change(op: Op) -> tuple[Op, ...]:
        if not isinstance(op, Attention) or op.phase != "decode":
            return (op,)
        return tuple(_shared_cache(op, ranks))

    return graph if ranks == 1 else graph.rewrite(change)


def _shared_cache(op: Attention, ranks: int) -> Iterator[Op]:
    heads = op.heads * ranks
    values = heads * op.head_dim

    def exchange(name: str, kind: Literal["all_gather", "reduce_scatter"], size: float) -> Collective:
        return Collective(
            name=f"attention.{name}", op=kind, rows=TOKENS, bytes_per_row=size, ranks=ranks, count=op.count
        )

    sums = ranks * heads * width(LSE)
    yield exchange("gather_queries", "all_gather", values * width(op.dtype))
    yield replace(_part(op, context_share=1 / ranks), heads=heads)
    yield exchange("gather_sums", "all_gather", sums)
    yield Elementwise(
        name="attention.weigh",
        rows=TOKENS,
        read_per_row=values * width(STATE) + sums,
        written_per_row=values * width(STATE),
        count=op.count,
    )
    yield exchange("scatter_output", "reduce_scatter", values * width(op.dtype))
    own, new = op.heads * op.head_dim * width(STATE), 2 * op.kv_heads * op.head_dim * width(STATE)
    yield Elementwise(name="attention.new", rows=TOKENS, read_per_row=own + new, written_per_row=own, count=op.count)
    yield Elementwise(name="attention.merge", rows=TOKENS, read_per_row=2 * own, written_per_row=own, count=op.count)


def _parted(op: Op, ranks: int) -> Op:
    """An operator on one rank's share of the tokens."""
    for name in ("m", "rows", "tokens"):
        size = getattr(op, name, None)
        if isinstance(size, Rows) and size.of == "tokens":
            return replace(op, **{name: Rows("tokens", size.factor / ranks)})  # type: ignore[arg-type]
    return op
