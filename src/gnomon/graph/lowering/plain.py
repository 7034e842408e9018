"""Layers as one kernel after another, as a framework runs them that fuses little: in both directions, or causally.

The kernels between GEMMs are those of a `KernelStyle`. Sequences of a step are whole and equally long; a decode appends
to a cache that is allocated anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, isqrt
from typing import Literal

from gnomon.graph.attention_span import WholeAttention
from gnomon.graph.dtypes import width
from gnomon.graph.lowering.cross import cross, heads_of
from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import STATE, Site, all_reduce
from gnomon.graph.lowering.streams import streamed
from gnomon.graph.ops import PREFILLS, ROW_BYTES, TOKENS, Attention, Elementwise, Gemm, Op, Rows
from gnomon.graph.sizes import merged
from gnomon.graph.style import NOTHING, POINTWISE, KernelStyle, Stream
from gnomon.spec import AttentionMixer as Softmax
from gnomon.spec import Block, CrossAttention, DenseFfn, Embedding, Linear, Strategy

SMALL_KERNELS = 17
"""Of a few numbers per sample, which make a layer's modulation from the time and the class: those of DiT in diffusers
0.42, counted by tracing it. They take no time of their own, but have to be launched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """How the layers of a network are run, whatever they run over."""

    style: KernelStyle
    beside: Stream = NOTHING
    """What the code around attention moves besides, in values per value of its queries."""
    kept: Stream = NOTHING
    """What keys and values of a source are moved by to be kept, in values per value of theirs."""
    scaled: Stream = POINTWISE
    """A shift, a scale or a gate, one for all tokens of a sample."""
    masked: bool = False
    """Scores get a mask added, which takes a kernel that reads it."""
    efficiency: float = 1.0
    masked_efficiency: float = 1.0
    """Throughput of attention relative to the profile's, without and with a mask."""
    skips: bool = True
    """Kernels skip what is outside a sliding window; else it is masked."""
    window_mask: Stream = NOTHING
    """What makes that mask for each layer, in values per pair of tokens."""

    def over(
        self, blocks: tuple[Block, ...], *, length: int, grid: tuple[int, int] = (0, 0), source: int = 0
    ) -> LayerRun:
        """Some layers over sequences of a length; learned distances are added as a mask is."""
        masked = self.masked or distances(blocks)
        return LayerRun(kernels=self, length=length, grid=grid, source=source, masked=masked)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """What layers run over, and with which kernels."""

    kernels: Kernels
    length: int
    """Tokens of each sequence."""
    grid: tuple[int, int] = (0, 0)
    """Tokens down and across, of an image."""
    source: int = 0
    """Tokens of a tower that each sequence attends to."""
    masked: bool = False

    @property
    def style(self) -> KernelStyle:
        return self.kernels.style

    def efficiency(self, masked: bool) -> float:
        return self.kernels.masked_efficiency if masked else self.kernels.efficiency


def distances(blocks: tuple[Block, ...]) -> bool:
    """Whether layers add learned distances: the first holds the table for all of them."""
    return any(isinstance(block.mixer, Softmax) and block.mixer.relative_buckets > 0 for block in blocks)


def layers(blocks: tuple[Block, ...], hidden: int, strategy: Strategy, dtype: str, how: LayerRun) -> Iterator[Op]:
    """All layers; those that attend to a source are skipped where there is none."""
    for block in merged(blocks):
        if isinstance(block.mixer, CrossAttention) and not how.source:
            continue
        yield from layer(Site(block=block, hidden=hidden, strategy=strategy, dtype=dtype, kv_dtype=STATE), how)


def layer(site: Site, how: LayerRun) -> Iterator[Op]:
    block = site.block
    yield from streamed("norm", how.style.norm, site.hidden, site.count * block.stream_norms)
    if isinstance(block.mixer, CrossAttention):
        yield from _crossed(site, block.mixer, how)
    elif block.mixer is not None:
        yield from _attention(site, how)
    if block.cross is not None:
        yield from _crossed(site, block.cross, how)
    if block.ffn is not None:
        yield from _feed_forward(site, how)
    yield from streamed("residual", how.style.residual, site.hidden, site.count * block.halves)
    yield from _extras(site, how)


def _crossed(site: Site, shape: CrossAttention, how: LayerRun) -> Iterator[Op]:
    return cross(
        site, shape, how.style, how.source, "forward", efficiency=how.efficiency(how.masked), kept=how.kernels.kept
    )


def _attention(site: Site, how: LayerRun) -> Iterator[Op]:
    shape, count, style = site.block.attention, site.count, how.style
    heads, kv_heads = heads_of(shape, site)
    q, kv = heads * shape.head_dim, kv_heads * shape.head_dim
    if style.joined:
        yield from linear("attention.qkv", "q", q + 2 * kv, site.hidden, site)
    else:
        for role, size in (("q", q), ("k", kv), ("v", kv)):
            yield from linear(f"attention.{role}", role, size, site.hidden, site)
    if shape.qk_norm:
        yield from streamed("attention.qk_norm", style.norm, q + kv, count)
    turned = shape.head_dim if shape.rotary_dim is None else shape.rotary_dim
    if turned:
        yield from streamed("attention.rope", style.rope, (heads + kv_heads) * turned, count)
    yield from streamed("attention.copies", how.kernels.beside, q, count)
    yield from _attend(site, how, heads, kv_heads)
    yield from linear("attention.out", "out", site.hidden, q, site)
    yield from all_reduce("attention.all_reduce", site)


def _attend(site: Site, how: LayerRun, heads: int, kv_heads: int) -> Iterator[Op]:
    shape, count = site.block.attention, site.count
    if shape.causal:
        yield from _causal(site, how, heads, kv_heads)
    if how.masked or not shape.causal:
        keys, pieces = attention_span(shape, how)
        windowed = shape.window is not None and not shape.chunked and not how.kernels.skips
        masked = how.masked or windowed
        if windowed:
            yield from streamed("attention.mask", how.kernels.window_mask, how.length, count)
        yield WholeAttention(
            name="attention",
            heads=heads,
            kv_heads=kv_heads,
            head_dim=shape.head_dim,
            keys=keys,
            pieces=pieces,
            masked=masked,
            efficiency=how.efficiency(masked),
            count=count,
        )


def _causal(site: Site, how: LayerRun, heads: int, kv_heads: int) -> Iterator[Op]:
    """Decodes, whose cache is copied to append to it, and prompts where a kernel for them skips what is ahead."""
    head_dim = site.block.attention.head_dim
    size = 2 * kv_heads * head_dim * width(STATE)
    yield Elementwise(
        name="attention.append", rows=Rows("decode_context"), read_per_row=size, written_per_row=size, count=site.count
    )
    phases: tuple[Literal["decode", "forward"], ...] = ("decode",) if how.masked else ("decode", "forward")
    for phase in phases:
        yield Attention(
            name="attention" if phase == "forward" else "attention.decode",
            phase=phase,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            kv_dtype=STATE,
            efficiency=how.kernels.efficiency if phase == "forward" else 1.0,
            count=site.count,
        )


def attention_span(shape: Softmax, how: LayerRun) -> tuple[float | None, int]:
    """Tokens that a token sees on average, and parts of a sequence that are alone."""
    if shape.window is None or (not shape.chunked and (not how.kernels.skips or how.masked)):
        return None, 1
    if not shape.chunked:
        reach = min(shape.window // 2, how.length - 1)
        return 1 + reach * (2 * how.length - reach - 1) / how.length, 1
    if not all(how.grid):
        return _cut(how.length, shape.window)
    found = [_cut(side, isqrt(shape.window)) for side in how.grid]
    return found[0][0] * found[1][0], found[0][1] * found[1][1]


def _cut(length: int, window: int) -> tuple[float, int]:
    """Mean length of the part a token is in, and how many parts there are."""
    whole, rest = divmod(length, window)
    return (whole * window**2 + rest**2) / length, whole + (rest > 0)


def _feed_forward(site: Site, how: LayerRun) -> Iterator[Op]:
    ffn, style = site.block.feed_forward, how.style
    assert isinstance(ffn, DenseFfn)
    inner = ffn.inner // site.tp
    if ffn.gated and style.joined:
        yield from linear("ffn.up", "up", 2 * inner, site.hidden, site)
    else:
        for role in ("gate", "up") if ffn.gated else ("up",):
            yield from linear(f"ffn.{role}", role, inner, site.hidden, site)
    yield from streamed("ffn.activation", style.gated if ffn.gated else style.plain, inner, site.count)
    if ffn.gated and not style.fused_activation:
        yield from streamed("ffn.product", style.product, inner, site.count)
    yield from linear("ffn.down", "down", site.hidden, inner, site)
    yield from all_reduce("ffn.all_reduce", site)


def _extras(site: Site, how: LayerRun) -> Iterator[Op]:
    """Shifts, scales and gates of both halves, and the matrices that make them once per sequence."""
    found = site.block.extras
    for part in found:
        if isinstance(part, Linear):
            yield matrix(part, site.dtype, site.count)
    made = any(isinstance(part, Linear) and part.once for part in found)
    if made:
        yield from streamed("modulate", how.kernels.scaled, site.hidden, site.count * 3 * site.block.halves)
        yield from streamed("modulation.small", POINTWISE, site.hidden, site.count * SMALL_KERNELS, PREFILLS)
    gates = sum(isinstance(part, Embedding) and part.width == 1 for part in found)
    yield from streamed("scale", POINTWISE, site.hidden, site.count * (gates + made))


def matrix(part: Linear, dtype: str, count: int = 1, rows: Rows = TOKENS) -> Gemm:
    """A weight matrix outside the halves."""
    rows = PREFILLS if part.once else rows
    return gemm(part.name, rows, part.outputs, part.inputs, dtype, count)


def gemm(name: str, rows: Rows, n: int, k: int, dtype: str, count: int = 1) -> Gemm:
    """A GEMM whose rows may begin anywhere, as logits of an odd vocabulary do; kernels of plain fp32 are not
    affected."""
    aligned, out = (ROW_BYTES if dtype == "fp32" else gcd(ROW_BYTES, int(size * width(STATE))) for size in (k, n))
    return Gemm(name=name, m=rows, n=n, k=k, dtype=dtype, count=count, aligned=aligned, out_aligned=out)


def check_plain(blocks: tuple[Block, ...]) -> str:
    """What of some layers has no plain kernels; empty where all has."""
    for block in blocks:
        for part in (block.mixer, block.ffn):
            if part is not None and not isinstance(part, (Softmax, CrossAttention, DenseFfn)):
                return f"layers of another kind ({type(part).__name__})"
        if isinstance(block.mixer, Softmax):
            why = _unusual(block.mixer)
            if why:
                return why
        if block.parallel:
            return "attention and feed-forward side by side"
    return ""


def _unusual(shape: Softmax) -> str:
    features = {
        "a causal window": shape.causal and shape.window is not None,
        "capped attention scores": shape.logit_cap is not None,
        "attention sinks": shape.sinks,
        "gated attention": shape.output_gate,
        "ALiBi position biases": shape.alibi,
        "keys and values of other layers": shape.shared_kv,
        "values that are its keys": shape.tied_values,
    }
    return next((name for name, there in features.items() if there), "")
