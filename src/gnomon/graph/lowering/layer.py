"""One layer of a network: its halves, the norms around them and the all-reduces after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gnomon.graph.lowering.convolution import short_convolution
from gnomon.graph.lowering.ffn import feed_forward
from gnomon.graph.lowering.latent import latent
from gnomon.graph.lowering.linear_attention import gated_delta, lightning
from gnomon.graph.lowering.parts import parts
from gnomon.graph.lowering.site import Site, all_reduce, stream
from gnomon.graph.lowering.softmax import softmax
from gnomon.graph.lowering.spaces import mamba, mamba2
from gnomon.graph.ops import Op
from gnomon.spec import (
    AttentionMixer,
    GatedDelta,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    ShortConvolution,
)

MIXERS: Mapping[type, Callable[..., Iterator[Op]]] = {
    AttentionMixer: softmax,
    LatentAttention: latent,
    Mamba: mamba,
    Mamba2: mamba2,
    GatedDelta: gated_delta,
    LightningAttention: lightning,
    ShortConvolution: short_convolution,
}


def layer(site: Site) -> Iterator[Op]:
    """Two norms for each half stand around it; with fewer norms than halves, both halves read what the first gave."""
    block = site.block
    around = block.stream_norms == 2 * block.halves
    if block.mixer is not None:
        part = "attention" if isinstance(block.mixer, (AttentionMixer, LatentAttention)) else "mixer"
        yield stream(f"{part}.norm", site.hidden, 2, 2, site.count)
        yield from MIXERS[type(block.mixer)](block.mixer, site)
        if not (block.parallel and site.one_sum):
            yield from all_reduce(f"{part}.all_reduce", site)
        if around:
            yield stream(f"{part}.post_norm", site.hidden, 1, 1, site.count)
    if block.ffn is not None:
        given = block.parallel and block.stream_norms < block.halves
        yield from (op for op in feed_forward(site) if not (given and op.name == "ffn.norm"))
        if around:
            yield stream("ffn.post_norm", site.hidden, 1, 1, site.count)
    if block.parallel:
        yield stream("layer.add", site.hidden, 2, 1, site.count)
    yield from parts(block.extras, site, "layer")
