"""Softmax attention over a paged cache."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import width
from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import STATE, Site, all_reduce, stream
from gnomon.graph.ops import Attention, Op


def softmax(site: Site) -> Iterator[Op]:
    shape, count = site.block.attention, site.count
    heads, kv_heads = shape.heads // site.tp, max(1, shape.kv_heads // site.tp)
    q, kv = heads * shape.head_dim, kv_heads * shape.head_dim
    yield stream("attention.norm", site.hidden, 2, 2, count)
    yield from linear("attention.qkv", "q", q + 2 * kv, site.hidden, site)
    if shape.qk_norm:
        yield stream("attention.qk_norm", q + kv, 1, 1, count)
    turned = shape.head_dim if shape.rotary_dim is None else shape.rotary_dim
    if turned:
        yield stream("attention.rope", (heads + kv_heads) * turned, 1, 1, count)
    yield stream("attention.cache_write", 2 * kv, 1, width(site.kv_dtype) / width(STATE), count)
    for phase in ("prefill", "decode"):
        yield Attention(
            name=f"attention.{phase}",
            phase=phase,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=shape.head_dim,
            kv_dtype=site.kv_dtype,
            count=count,
        )
    yield from linear("attention.out", "out", site.hidden, q, site)
    yield from all_reduce("attention.all_reduce", site)
