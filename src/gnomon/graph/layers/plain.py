"""Attention of whole sequences in the kernels of plain code: what it sees, what it masks, and decodes over a cache that
is allocated anew."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any

from gnomon.graph.dtypes import width
from gnomon.graph.layers.heads import Heads
from gnomon.graph.layers.writer import Writer, bare
from gnomon.graph.ops import TOKENS, Attention, Elementwise, Rows
from gnomon.graph.streams import streamed
from gnomon.graph.tape import TapeNode


def span(writer: Writer, of: Heads) -> dict[str, Any]:
    """What each token sees, as fields of the kernel. A mask hides what lies ahead or outside a sliding window, and the
    kernel that reads it skips nothing; in training, kernels for a mask of distances skip what lies ahead."""
    style, window, masked = writer.style, of.window, writer.style.masked or writer.distances
    if window is not None and window.chunked and not of.causal:
        keys, pieces = _chunks(window.length, writer.cut.seq, writer.cut.grid)
        seen: dict[str, Any] = {"keys": keys, "pieces": pieces, "causal": False}
    else:
        sliding = window is not None and not of.causal
        hidden = sliding and (masked or not style.skips_windows)
        masked = masked or hidden
        causal = of.causal and not (masked and writer.cut.inference)
        seen = {"window": None if hidden else window, "causal": causal}
    efficiency = style.masked_efficiency if masked else style.attention_efficiency
    return seen | {"masked": masked, "learned": writer.distances, "efficiency": efficiency}


def _chunks(area: int, length: int, grid: tuple[int, int]) -> tuple[float, int]:
    """Tokens that a token sees on average where a sequence, or a picture, is cut into parts that are alone; and how
    many parts there are."""
    if not all(grid):
        return _cut(length, area)
    found = [_cut(side, isqrt(area)) for side in grid]
    return found[0][0] * found[1][0], found[0][1] * found[1][1]


def _cut(length: int, window: int) -> tuple[float, int]:
    """Mean length of the part a token is in, and how many parts there are."""
    whole, rest = divmod(length, window)
    return (whole * window**2 + rest**2) / length, whole + (rest > 0)


def before(writer: Writer, of: Heads) -> Iterator[TapeNode]:
    """What runs beside prompts: decodes, whose cache is copied to append to it, and the mask of a window."""
    if of.causal:
        yield from bare(*_decoded(writer, of))
    elif of.window is not None and not of.window.chunked and not writer.style.skips_windows:
        size = writer.cut.seq * writer.value
        mask = streamed("attention.mask", writer.style.window_mask, size, TOKENS, uncached=writer.style.uncached)
        yield from bare(mask)


def _decoded(writer: Writer, of: Heads) -> Iterator[Attention | Elementwise]:
    dtype = writer.cut.dtype
    size = 2 * of.kv_heads * of.key_dim * width(dtype)
    yield Elementwise(name="attention.append", rows=Rows("decode_context"), read_per_row=size, written_per_row=size)
    yield Attention(
        name="attention.decode", phase="decode", heads=of.heads, kv_heads=of.kv_heads, head_dim=of.key_dim,
        kv_dtype=dtype, dtype=dtype,
    )  # fmt: skip
