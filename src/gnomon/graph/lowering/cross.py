"""Cross-attention: queries of the stream over keys and values of a source, which are made once and kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gnomon.graph.attention_span import SourceAttention
from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import Site, all_reduce
from gnomon.graph.lowering.streams import streamed
from gnomon.graph.ops import Op, Rows
from gnomon.graph.style import NOTHING, KernelStyle, Stream
from gnomon.spec import AttentionMixer, CrossAttention


def heads_of(shape: AttentionMixer | CrossAttention, site: Site) -> tuple[int, int]:
    """Of one rank; key-value heads are copied where there are more ranks than heads."""
    return shape.heads // site.tp, max(1, shape.kv_heads // site.tp)


def cross(
    site: Site,
    shape: CrossAttention,
    style: KernelStyle,
    source: int,
    phase: Literal["prefill", "forward"],
    *,
    efficiency: float = 1.0,
    kept: Stream = NOTHING,
) -> Iterator[Op]:
    """One half of a layer. Prompts make keys and values of `source` tokens per sequence; decodes reuse them.
    `efficiency` is that of attention over prompts, `kept` what keys and values are moved by to be kept."""
    heads, kv_heads = heads_of(shape, site)
    q, kv, rows = heads * shape.head_dim, kv_heads * shape.head_dim, Rows("prefills", float(source))
    yield from linear("cross.q", "cross_q", q, site.hidden, site)
    if style.joined:
        yield from linear("cross.kv", "cross_k", 2 * kv, shape.source_width, site, rows)
    else:
        for role in ("k", "v"):
            yield from linear(f"cross.{role}", f"cross_{role}", kv, shape.source_width, site, rows)
    if shape.qk_norm:
        yield from streamed("cross.q_norm", style.norm, q, site.count)
        yield from streamed("cross.k_norm", style.norm, kv, site.count, rows)
    yield from streamed("cross.copies", kept, 2 * kv, site.count, rows)
    for way in (phase, "decode"):
        name = "cross.attention" if way == phase else "cross.decode"
        yield SourceAttention(
            name=name,
            phase=way,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=shape.head_dim,
            keys=source,
            efficiency=efficiency if way == phase else 1.0,
            count=site.count,
        )
    yield from linear("cross.out", "cross_out", site.hidden, q, site)
    yield from all_reduce("cross.all_reduce", site)
