"""Convolutions over the last few tokens: before a state, or as a mixer of their own."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import Site, stream
from gnomon.graph.ops import Op
from gnomon.graph.sizes import DECODES, PROMPT_TOKENS
from gnomon.spec import ShortConvolution


def short_convolution(shape: ShortConvolution, site: Site) -> Iterator[Op]:
    width = shape.width // site.tp
    yield from linear("conv.in", "in", 3 * width, site.hidden, site)
    yield stream("conv.gate", width, 2, 1, site.count)
    yield from convolve("conv", width, shape.conv, site)
    yield stream("conv.out_gate", width, 2, 1, site.count)
    yield from linear("conv.out", "out", site.hidden, width, site)


def convolve(part: str, width: int, taps: int, site: Site) -> Iterator[Op]:
    """Prompts stream through; a decode reads and writes the tokens that are kept, too."""
    yield stream(f"{part}.conv.prefill", width, 1, 1, site.count, PROMPT_TOKENS)
    yield stream(f"{part}.conv.decode", width, taps, taps, site.count, DECODES)
