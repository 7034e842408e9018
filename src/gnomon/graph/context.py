"""Decode context parallelism as a pass over a graph: the cache of sequences spread over the ranks of a tensor-parallel
group, as vLLM does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from gnomon.graph.base import Graph
from gnomon.graph.dtypes import STATE, width
from gnomon.graph.ops import TOKENS, Attention, Collective, Elementwise, Op, Shape
from gnomon.spec.workload import Batch, Floats

LSE = "fp32"
"""Format of the logarithm of a softmax's sum, one for each token and head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartAttention(Attention):
    """Attention of one rank to its share of the cached tokens."""

    context_share: float = 1.0

    def _own(self, batch: Batch) -> Batch:
        return replace(
            batch,
            decode_context=batch.decode_context * self.context_share,
            prefill_context=batch.prefill_context * self.context_share,
        )

    def _context(self, batch: Batch) -> Floats:
        """Of a window, as of all else, each rank has its share. `batch` has the rank's own tokens."""
        if self.window is None:
            return Attention._context(self, batch)
        share = self.context_share
        whole = replace(
            batch, decode_context=batch.decode_context / share, prefill_context=batch.prefill_context / share
        )
        return np.asarray(share * Attention._context(self, whole))

    def shape(self, batch: Batch) -> Shape:
        return Attention.shape(self, self._own(batch))

    def flops(self, batch: Batch) -> Floats:
        return Attention.flops(self, self._own(batch))

    def bytes(self, batch: Batch) -> Floats:
        return Attention.bytes(self, self._own(batch))


def part_attention(op: Attention, context_share: float, **changes: float) -> PartAttention:
    """An attention kernel on a share of the part of the cache that it had."""
    known: dict[str, Any] = {field.name: getattr(op, field.name) for field in fields(op)}
    before = known.get("context_share", 1.0)
    return PartAttention(**known | changes | {"context_share": before * context_share})


def decode_context(graph: Graph, ranks: int) -> Graph:
    """The cache of each head spread over `ranks` neighbours that hold the same key-value head.

    All queries of the group attend to a rank's share of the cache; the partial results are weighted by their softmax's
    sum and reduced, each rank keeping its own heads, and merged with what they see of the step's new tokens. Prompts
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
    yield part_attention(op, context_share=1 / ranks, heads=heads)
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
