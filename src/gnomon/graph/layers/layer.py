"""One layer of a network: its halves, the norms around them and the sums after them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping

from gnomon.graph.layers import modulation
from gnomon.graph.layers.attention import attention
from gnomon.graph.layers.cross import cross
from gnomon.graph.layers.ffn import dense, mixture
from gnomon.graph.layers.latent import latent
from gnomon.graph.layers.parts import parts
from gnomon.graph.layers.recurrent import gated_delta, lightning, mamba, mamba2, short_convolution
from gnomon.graph.layers.writer import Writer
from gnomon.graph.tape import RESULT, SOURCE, TapeNode
from gnomon.spec import (
    AttentionMixer,
    Block,
    CrossAttention,
    DenseFfn,
    GatedDelta,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    MoeFfn,
    ShortConvolution,
)

HALVES: Mapping[type, Callable[..., Iterator[TapeNode]]] = {
    AttentionMixer: attention,
    LatentAttention: latent,
    CrossAttention: cross,
    Mamba: mamba,
    Mamba2: mamba2,
    GatedDelta: gated_delta,
    LightningAttention: lightning,
    ShortConvolution: short_convolution,
    DenseFfn: dense,
    MoeFfn: mixture,
}


def layer(writer: Writer, block: Block) -> Iterator[TapeNode]:
    """From the residual stream to the residual stream."""
    if block.modulated:
        yield from modulation.made(writer, block.extras)
    yield from (_side_by_side if block.parallel else _in_turn)(writer, block)
    if not block.modulated:
        yield from parts(writer, block.extras, "layer", "")


def _in_turn(writer: Writer, block: Block) -> Iterator[TapeNode]:
    """Two norms for each half stand around it. A modulated half is shifted and scaled behind its norm, and gated."""
    halves = [half for half in (block.mixer, block.cross, block.ffn) if half is not None]
    stream = SOURCE
    for place, half in enumerate(halves):
        part, normed, made = _names(half)
        modulated = block.modulated and not isinstance(half, CrossAttention)
        if place or block.stream_norms >= block.halves:
            yield writer.norm(f"{part}.norm", stream, normed)
        else:  # what it reads was normed before
            normed = stream
        if modulated:
            normed = yield from modulation.shifted(writer, part, normed)
        yield from HALVES[type(half)](writer, half, normed)
        made = yield from _summed(writer, half, part, made)
        if modulated or block.gated:
            made = yield from modulation.gated(writer, part, made)
        if block.stream_norms == 2 * block.halves:
            yield writer.norm(f"{part}.post_norm", made, f"{part}.post", writer.style.lone_norm)
            made = f"{part}.post"
        written = RESULT if place == len(halves) - 1 else "between" if not place else "beyond"
        yield writer.residual(part, made, stream, written)
        stream = written


def _side_by_side(writer: Writer, block: Block) -> Iterator[TapeNode]:
    """Both halves read the same stream, through one norm or one each, and both results are added to it."""
    assert block.mixer is not None and block.ffn is not None
    (part, normed, made), (_, ready, fed) = _names(block.mixer), _names(block.ffn)
    yield writer.norm(f"{part}.norm", SOURCE, normed)
    yield from HALVES[type(block.mixer)](writer, block.mixer, normed)
    if block.stream_norms > 1:
        yield writer.norm("ffn.norm", SOURCE, ready)
    yield from HALVES[type(block.ffn)](writer, block.ffn, ready if block.stream_norms > 1 else normed)
    if not (writer.cut.paged and writer.cut.paged.one_sum):
        made = yield from _summed(writer, block.mixer, part, made)
    if not writer.cut.paged:
        yield writer.residual(part, made, SOURCE, "between")
    fed = yield from _summed(writer, block.ffn, "ffn", fed)
    if writer.cut.paged:
        yield writer.elementwise("layer.add", writer.style.total, writer.model.hidden, (made, fed), {}, False)
    else:
        yield writer.residual("ffn", fed, "between", RESULT)


def _names(half: object) -> tuple[str, str, str]:
    """The part of a layer, what its norm gives it and what it makes."""
    if isinstance(half, DenseFfn | MoeFfn):
        return "ffn", "ready", "fed"
    if isinstance(half, CrossAttention):
        return "cross", "asking", "crossed"
    return ("attention" if isinstance(half, AttentionMixer | LatentAttention) else "mixer"), "normed", "attended"


def _summed(writer: Writer, half: object, part: str, read: str) -> Generator[TapeNode, None, str]:
    """Experts give full sums for a rank's own tokens, all else partial ones."""
    if isinstance(half, MoeFfn):
        return read
    return (yield from writer.summed(part, read))
