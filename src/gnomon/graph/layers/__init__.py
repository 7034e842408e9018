"""Layers of a network as operators: a file for each kind of part. As tapes they have gradients (`passes`)."""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.graph.layers import ends
from gnomon.graph.layers.cut import Cut, Paged
from gnomon.graph.layers.layer import layer as write
from gnomon.graph.layers.writer import Writer
from gnomon.graph.style import KernelStyle
from gnomon.graph.tape import Tape, TapeNode
from gnomon.spec import Block, Model

__all__ = ["Cut", "Paged", "Writer", "embedding", "ends", "head", "layer", "write"]


def layer(model: Model, block: Block, cut: Cut, style: KernelStyle) -> Tape:
    """One layer, from the residual stream to the residual stream."""
    from gnomon.graph.passes.recompute import recomputing

    writer = Writer(model, cut, style)
    return recomputing(_trained(write(writer, block), writer), writer.sizes, style)


def embedding(model: Model, cut: Cut, style: KernelStyle) -> Tape:
    """Tokens to the residual stream; each rank looks up its part of the vocabulary."""
    writer = Writer(model, cut, style)
    return Tape(name="embedding", nodes=tuple(_trained(ends.embedding(writer), writer)), sizes=writer.sizes)


def head(model: Model, cut: Cut, style: KernelStyle) -> Tape:
    """The residual stream to the loss."""
    writer = Writer(model, cut, style)
    return Tape(name="head", nodes=tuple(_trained(ends.head(writer), writer)), sizes=writer.sizes)


def _trained(nodes: Iterable[TapeNode], writer: Writer) -> list[TapeNode]:
    """The passes of training."""
    from gnomon.graph.passes import context, differentiate, quantise

    found = differentiate.differentiate(list(nodes), writer.style)
    found = [context.across(quantise.trained(node, writer), writer) for node in found]
    return differentiate.add_up(found, writer)
