"""Feed-forward halves: dense, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import STATE, Site, all_reduce, stream
from gnomon.graph.ops import TOKENS, Experts, Gemm, Op
from gnomon.spec import DenseFfn, MoeFfn


def feed_forward(site: Site) -> Iterator[Op]:
    yield stream("ffn.norm", site.hidden, 2, 2, site.count)
    ffn = site.block.feed_forward
    yield from experts(ffn, site) if isinstance(ffn, MoeFfn) else dense(ffn, site)
    yield from all_reduce("ffn.all_reduce", site)


def dense(ffn: DenseFfn, site: Site) -> Iterator[Op]:
    inner = ffn.inner // site.tp
    up = 2 if ffn.gated else 1
    yield from linear("ffn.up", "up", up * inner, site.hidden, site)
    yield stream("ffn.activation", inner, up, 1, site.count)
    yield from linear("ffn.down", "down", site.hidden, inner, site)


def experts(ffn: MoeFfn, site: Site) -> Iterator[Op]:
    yield Gemm(name="ffn.router", m=TOKENS, n=ffn.experts, k=site.hidden, dtype=STATE, count=site.count)
    yield stream("ffn.choose", ffn.experts, 1, 2 * ffn.topk / ffn.experts, site.count)
    yield Experts(
        name="ffn.experts",
        tokens=TOKENS,
        hidden=site.hidden,
        inner=ffn.inner // site.tp,
        experts=ffn.experts,
        topk=ffn.topk,
        dtype=site.product("expert_up"),
        count=site.count,
    )
    if ffn.shared_inner:
        yield from dense(DenseFfn(inner=ffn.shared_inner), site)
