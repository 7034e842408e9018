"""Feed-forward halves: dense, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gnomon.graph.dtypes import width
from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import STATE, Site, all_reduce, stream
from gnomon.graph.ops import TOKENS, Collective, Experts, Gemm, Op, Rows, Size
from gnomon.spec import DenseFfn, MoeFfn

Exchange = Literal["all_gather", "reduce_scatter"]
CHOICE_BYTES = 8
"""Of an expert's number and its weight, in four bytes each, which travel with a token."""
SCALE_BLOCK = 128
"""Channels that share a scale, of four bytes, where a token travels in eight bits."""


def feed_forward(site: Site) -> Iterator[Op]:
    yield stream("ffn.norm", site.hidden, 2, 2, site.count)
    ffn = site.block.feed_forward
    if isinstance(ffn, MoeFfn):
        yield from mixture(ffn, site)
    else:
        yield from dense(ffn, site, site.tp)
        yield from all_reduce("ffn.all_reduce", site)


def dense(ffn: DenseFfn, site: Site, parts: int, rows: Size = TOKENS, name: str = "ffn.") -> Iterator[Op]:
    """Cut into so many parts along its inner width; `name` is how its operators' names begin."""
    inner = ffn.inner // parts
    up = 2 if ffn.gated else 1
    yield from linear(f"{name}up", "up", up * inner, site.hidden, site, rows)
    yield stream(f"{name}activation", inner, up, 1, site.count, rows)
    yield from linear(f"{name}down", "down", site.hidden, inner, site, rows)


def mixture(ffn: MoeFfn, site: Site) -> Iterator[Op]:
    """Tokens of all data-parallel ranks meet at the experts, which are spread over the ranks of both kinds (expert
    parallel), or cut among them.

    Tensor-parallel ranks hold the same tokens. Where they split them first (`site.sequence_parallel_moe`), each routes
    its own and runs the shared experts on them with unsharded weights; else all do the same, and reduce the results.
    """
    own = Rows("tokens", 1 / site.tp) if site.sequence_parallel_moe else TOKENS
    yield from _router(ffn, site, own)
    yield stream("ffn.choose", ffn.experts, 1, 2 * ffn.topk / ffn.experts, site.count, own)
    yield from _exchange("ffn.dispatch", "all_gather", _dispatched_bytes(ffn, site), site)
    yield experts(ffn, site)
    yield from _exchange("ffn.combine", "reduce_scatter", site.hidden * width(STATE), site)
    if ffn.shared_inner:
        shared = DenseFfn(inner=ffn.shared_inner)
        yield from dense(shared, site, 1 if site.sequence_parallel_moe else site.tp, own, "ffn.shared_")
    if not site.sequence_parallel_moe:
        yield from all_reduce("ffn.all_reduce", site)
    else:
        size = site.hidden * width(STATE)
        yield Collective(
            name="ffn.all_gather",
            op="all_gather",
            rows=TOKENS,
            bytes_per_row=size,
            ranks=site.tp,
            count=site.count,
        )


def _router(ffn: MoeFfn, site: Site, rows: Rows) -> Iterator[Op]:
    """The scores of all experts; tokens are widened first where they are computed in a wider format."""
    dtype = ffn.router_dtype or STATE
    if dtype != STATE:
        yield stream("ffn.router.widen", site.hidden, 1, width(dtype) / width(STATE), site.count, rows)
    yield Gemm(name="ffn.router", m=rows, n=ffn.experts, k=site.hidden, dtype=dtype, count=site.count)


def experts(ffn: MoeFfn, site: Site) -> Experts:
    strategy, stored = site.strategy, dict(site.block.formats).get("expert_up")
    return Experts(
        name="ffn.experts",
        tokens=Rows("tokens", site.gathered),
        hidden=site.hidden,
        inner=ffn.inner // (strategy.tp * strategy.dp if strategy.ep == 1 else 1),
        experts=ffn.experts,
        topk=ffn.topk,
        dtype=site.gemm_dtype("expert_up"),
        padded_to=stored.padded_to if stored else (1, 1),
        ranks=strategy.ep,
        count=site.count,
    )


def _exchange(name: str, op: Exchange, bytes_per_token: float, site: Site) -> Iterator[Op]:
    """Tokens of the data-parallel ranks brought together, or their sums taken apart again.

    Ranks stand as vLLM orders them: tensor-parallel ones next to each other, then stages, then data-parallel ones.
    """
    tp, pp, dp = site.tp, site.strategy.pp, site.strategy.dp
    if dp == 1:
        return
    yield Collective(
        name=name,
        op=op,
        rows=Rows("tokens", site.gathered),
        bytes_per_row=bytes_per_token,
        ranks=tp * dp if site.sequence_parallel_moe else dp,
        stride=1 if site.sequence_parallel_moe else tp * pp,
        count=site.count,
    )


def _dispatched_bytes(ffn: MoeFfn, site: Site) -> float:
    """A token's channels, quantised before they leave where the experts are, and its choices."""
    narrow = site.dtype == "fp8"
    channels = width(site.dtype) + 4 / SCALE_BLOCK if narrow else width(STATE)
    return site.hidden * channels + ffn.topk * CHOICE_BYTES
