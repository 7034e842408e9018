"""Linear attention: the gated delta rule, and lightning attention."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.lowering.convolution import convolve
from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import Site, all_reduce, stream
from gnomon.graph.lowering.spaces import SCALAR, scans
from gnomon.graph.ops import Op
from gnomon.graph.sizes import PROMPT_TOKENS
from gnomon.spec import GatedDelta, LightningAttention

DELTA_CHUNK = 64
"""Tokens that the kernels of the delta rule take at once."""


def gated_delta(shape: GatedDelta, site: Site) -> Iterator[Op]:
    count, tp, heads = site.count, site.tp, shape.value_heads // site.tp
    values, mixed = heads * shape.value_dim, shape.conv_width // tp
    yield from linear("delta.in", "in", mixed + values, site.hidden, site)
    yield from linear("delta.decay", "decay", 2 * heads, site.hidden, site)
    yield from convolve("delta", mixed, shape.conv, site)
    # Queries and keys get the length one; decodes do so in the kernel of the state.
    yield stream("delta.prepare", mixed, 1, 1, count, PROMPT_TOKENS)
    yield from scans(
        "gated_delta",
        site,
        heads=heads,
        head_dim=shape.value_dim,
        state_dim=shape.key_dim,
        groups=shape.key_heads // tp,
        chunk=DELTA_CHUNK,
    )
    yield stream("delta.gate", values, 2, 1, count)
    yield from linear("delta.out", "out", site.hidden, values, site)


def lightning(shape: LightningAttention, site: Site) -> Iterator[Op]:
    count, heads = site.count, shape.heads // site.tp
    width = heads * shape.head_dim
    yield from linear("lightning.in", "in", 3 * width, site.hidden, site)
    # Widened to fp32, then bent.
    yield stream("lightning.activation", 3 * width, 3, 4, count)
    yield from scans(
        "lightning",
        site,
        heads=heads,
        head_dim=shape.head_dim,
        state_dim=shape.head_dim,
        groups=heads,
        chunk=shape.block,
    )
    yield stream("lightning.norm", width, 1, 1, count)
    yield from all_reduce("lightning.norm_all_reduce", site, SCALAR)
    yield from linear("lightning.out_gate", "out_gate", width, site.hidden, site)
    yield stream("lightning.gate", width, 2, 1, count)
    yield from linear("lightning.out", "out", site.hidden, width, site)
