"""Layers of a network as operators: a file for each kind of part. As tapes they have gradients (`passes`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gnomon.graph.layers import ends
from gnomon.graph.layers.cut import Cut, Paged
from gnomon.graph.layers.layer import layer as write
from gnomon.graph.layers.writer import Writer
from gnomon.graph.style import KernelStyle
from gnomon.graph.tape import Tape, TapeNode
from gnomon.spec import Block, Model

__all__ = ["Cut", "NodePass", "Paged", "Writer", "embedding", "ends", "head", "layer", "trained", "write"]

NodePass = Callable[[str, list[TapeNode], Writer], list[TapeNode]]
"""Rewrites the forward operators of a part of the network (`embedding`, `layer` or `head`) before its gradients are
derived: adds, replaces or freezes operators."""


def layer(model: Model, block: Block, cut: Cut, style: KernelStyle, passes: Sequence[NodePass] = ()) -> Tape:
    """One layer, from the residual stream to the residual stream."""
    from gnomon.graph.passes.chunks import in_chunks
    from gnomon.graph.passes.pieces import in_pieces
    from gnomon.graph.passes.recompute import recomputing

    writer = Writer(model, replace(cut, source=model.source_tokens) if model.attends else cut, style)
    nodes = captured(trained("layer", write(writer, block), writer, passes), cut)
    tape = recomputing(nodes, writer.sizes, style)
    return replace(tape, pieces=in_pieces(nodes, writer), chunks=in_chunks(nodes))


def embedding(model: Model, cut: Cut, style: KernelStyle, passes: Sequence[NodePass] = ()) -> Tape:
    """Tokens to the residual stream; each rank looks up its part of the vocabulary."""
    writer = Writer(model, cut, style)
    nodes, sizes = trained("embedding", ends.embedding(writer), writer, passes), writer.sizes
    if model.beside:
        from gnomon.graph.layers.together import with_towers

        nodes, sizes = with_towers(nodes, sizes, model, cut, style)
    return Tape(name="embedding", nodes=tuple(_captured_end(nodes, model, cut)), sizes=sizes)


def head(model: Model, cut: Cut, style: KernelStyle, passes: Sequence[NodePass] = ()) -> Tape:
    """The residual stream to the loss."""
    writer = Writer(model, cut, style)
    nodes, sizes = trained("head", ends.head(writer), writer, passes), writer.sizes
    if model.mtp:
        from gnomon.graph.layers.together import further_heads

        more, own = further_heads(model, cut, style, passes)
        nodes, sizes = more + nodes, own | sizes
    return Tape(name="head", nodes=tuple(_captured_end(nodes, model, cut)), sizes=sizes)


def captured(nodes: Sequence[TapeNode], cut: Cut) -> list[TapeNode]:
    """With CUDA graphs, what of a layer is in one: all of it, or what is before the host waits for numbers of rows that
    follow from the tokens."""
    if not cut.cuda_graphs:
        return list(nodes)
    last = next((place for place, node in enumerate(nodes) if node.awaited), len(nodes))
    return [replace(node, captured=place < last) for place, node in enumerate(nodes)]


def _captured_end(nodes: Sequence[TapeNode], model: Model, cut: Cut) -> list[TapeNode]:
    """An embedding and a head are in a graph of the full step, which needs the same sizes in all layers."""
    static = cut.pad_to_capacity or not model.is_moe
    return [replace(node, captured=True) for node in nodes] if cut.cuda_graphs and static else list(nodes)


def trained(part: str, nodes: Iterable[TapeNode], writer: Writer, passes: Sequence[NodePass]) -> list[TapeNode]:
    """The passes of training: those of techniques, then those of every plan."""
    from gnomon.graph.passes import context, differentiate, quantise

    found = list(nodes)
    for rewritten in passes:
        found = rewritten(part, found, writer)
    found = differentiate.differentiate(found, writer.style)
    found = [context.across(quantise.trained(node, writer), writer) for node in found]
    return differentiate.add_up(found, writer)
