"""The largest working set of a pass through layers: what is alive between two of their kernels."""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.graph.dtypes import width
from gnomon.spec import AttentionMixer, Block, CrossAttention, DenseFfn


def working_bytes(blocks: Iterable[Block], hidden: int, tokens: float, dtype: str, tp: int = 1) -> float:
    """The stream, its normed copy, and the widest that stands beside them: queries, keys, values and what attention
    made of them, or a feed-forward's channels before and behind its activation."""
    widest = 0.0
    for block in blocks:
        for part in (block.mixer, block.cross, block.ffn):
            if isinstance(part, AttentionMixer | CrossAttention):
                widest = max(widest, 2.0 * (part.heads + part.kv_heads) * part.head_dim / tp)
            elif isinstance(part, DenseFfn):
                widest = max(widest, (3.0 if part.gated else 2.0) * part.inner / tp)
    return tokens * (2.0 * hidden + widest) * max(width(dtype), 2.0)
