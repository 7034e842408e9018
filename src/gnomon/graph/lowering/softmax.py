"""Softmax attention over a paged cache."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import width
from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import STATE, Site, stream
from gnomon.graph.ops import Attention, Op
from gnomon.graph.windows import Window
from gnomon.spec import AttentionMixer as Shape


def softmax(shape: Shape, site: Site) -> Iterator[Op]:
    """Sinks, slopes and learned distances are a few numbers per head, read in the kernel that mixes."""
    count, heads = site.count, shape.heads // site.tp
    kv_heads = max(1, shape.kv_heads // site.tp)
    q, kv = heads * shape.head_dim, kv_heads * shape.head_dim
    own = 0 if shape.shared_kv else kv
    gates, made = (2 if shape.output_gate else 1), (1 if shape.tied_values else 2)
    yield from linear("attention.qkv", "q", gates * q + made * own, site.hidden, site)
    if shape.qk_norm:
        yield stream("attention.qk_norm", q + own, 1, 1, count)
    turned = shape.head_dim if shape.rotary_dim is None else shape.rotary_dim
    if turned:
        yield stream("attention.rope", (heads + own // shape.head_dim) * turned, 1, 1, count)
    if own:
        yield stream("attention.cache_write", 2 * kv, made / 2, width(site.kv_dtype) / width(STATE), count)
    yield from _mixed(shape, site, heads, kv_heads)
    if shape.output_gate:
        yield stream("attention.gate", q, 2, 1, count)
    yield from linear("attention.out", "out", site.hidden, q, site)


def _mixed(shape: Shape, site: Site, heads: int, kv_heads: int) -> Iterator[Op]:
    window = Window(shape.window, shape.chunked) if shape.window else None
    for phase in ("prefill", "decode"):
        yield Attention(
            name=f"attention.window.{phase}" if window else f"attention.{phase}",
            phase=phase,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=shape.head_dim,
            kv_dtype=site.kv_dtype,
            window=window,
            capped=shape.logit_cap is not None,
            count=site.count,
        )
