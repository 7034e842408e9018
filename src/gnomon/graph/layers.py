"""Layers as tapes: one transformer layer, the embedding and the head with its loss, on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.graph.autograd import ends
from gnomon.graph.autograd.attention import attention
from gnomon.graph.autograd.cut import Cut
from gnomon.graph.autograd.ffn import dense, mixture
from gnomon.graph.autograd.latent import latent
from gnomon.graph.autograd.writer import NARROW, Writer
from gnomon.graph.style import KernelStyle
from gnomon.graph.tape import RESULT, SOURCE, Tape, TapeNode
from gnomon.spec import Block, LatentAttention, Model, MoeFfn

__all__ = ["Cut", "embedding", "head", "layer"]


def layer(model: Model, block: Block, cut: Cut, style: KernelStyle) -> Tape:
    """One layer, from the residual stream to the residual stream."""
    writer = Writer(model, cut, style)
    nodes = list(_parallel(writer, block) if block.parallel else _sequential(writer, block))
    if style.alternate_gemms:
        nodes = list(_alternate(nodes))
    return _layer_tape(nodes, writer.sizes, style)


def embedding(model: Model, cut: Cut, style: KernelStyle) -> Tape:
    """Tokens to the residual stream; each rank looks up its part of the vocabulary."""
    writer = Writer(model, cut, style)
    return Tape(name="embedding", nodes=tuple(ends.embedding(writer)), sizes=writer.sizes)


def head(model: Model, cut: Cut, style: KernelStyle) -> Tape:
    """The residual stream to the loss."""
    writer = Writer(model, cut, style)
    return Tape(name="head", nodes=tuple(ends.head(writer)), sizes=writer.sizes)


def _sequential(writer: Writer, block: Block) -> Iterator[TapeNode]:
    yield writer.norm("attention.norm", SOURCE, "normed")
    yield from _mixer(writer, block, "normed")
    yield from writer.leave("attention", "attended", SOURCE, "between")
    yield writer.norm("ffn.norm", "between", "ready")
    yield from _feed(writer, block, "ready")
    yield from _onto(writer, block, "between")


def _parallel(writer: Writer, block: Block) -> Iterator[TapeNode]:
    """Both halves read the same stream, through one norm or one each, and both results are added to it."""
    yield writer.norm("attention.norm", SOURCE, "normed")
    yield from _mixer(writer, block, "normed")
    read = "normed"
    if block.stream_norms > 1:
        yield writer.norm("ffn.norm", SOURCE, "ready")
        read = "ready"
    yield from _feed(writer, block, read)
    yield from writer.leave("attention", "attended", SOURCE, "between")
    yield from _onto(writer, block, "between")


def _alternate(nodes: list[TapeNode]) -> Iterator[TapeNode]:
    """Every second GEMM with weights as cheap as what is always recomputed."""
    place = 0
    for node in nodes:
        place += bool(node.by_weight)
        yield replace(node, cheap=True) if node.by_weight and place % 2 == 0 else node


def _mixer(writer: Writer, block: Block, read: str) -> Iterator[TapeNode]:
    if isinstance(block.mixer, LatentAttention):
        yield from latent(writer, block.mixer, read)
    else:
        yield from attention(writer, block.attention, read)


def _feed(writer: Writer, block: Block, read: str) -> Iterator[TapeNode]:
    ffn = block.feed_forward
    yield from mixture(writer, ffn, read) if isinstance(ffn, MoeFfn) else dense(writer, ffn, read)


def _onto(writer: Writer, block: Block, beside: str) -> Iterator[TapeNode]:
    """Experts give full sums for a rank's own tokens, dense feed-forwards partial ones."""
    if isinstance(block.feed_forward, MoeFfn):
        yield writer.residual("ffn", "fed", beside, RESULT)
    else:
        yield from writer.leave("ffn", "fed", beside, RESULT)


def _layer_tape(nodes: list[TapeNode], sizes: dict[str, float], style: KernelStyle) -> Tape:
    kept = frozenset(tensor for node in nodes for tensor in node.keeps)
    outputs = frozenset(tensor for node in nodes if not node.cheap for tensor in node.writes)
    if style.alternate_gemms:  # what is saved is the result of an operator, and casts are recomputed
        outputs = frozenset(tensor for tensor in outputs if not tensor.endswith(NARROW))
    inside = frozenset(tensor for node in nodes if node.cheap for tensor in node.writes)
    lasting = kept & frozenset(tensor for node in nodes if not node.cheap for tensor in node.keeps)
    last = max(place for place, node in enumerate(nodes) if node.keeps)
    recomputed = nodes[:last] if style.stop_early else nodes
    stored = (outputs | {SOURCE}) - {RESULT} if style.stop_early else lasting | (kept - inside) | {SOURCE}
    return Tape(
        name="layer",
        nodes=tuple(nodes),
        sizes=sizes,
        stored={"full": frozenset({SOURCE}), "selective": frozenset(stored)},
        recomputes={
            "full": frozenset(node.name for node in recomputed),
            "selective": frozenset(node.name for node in recomputed if node.cheap),
        },
    )
