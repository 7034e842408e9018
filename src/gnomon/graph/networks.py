"""One step of networks that are no plain decoders, in plain kernels: encoders, diffusion transformers, towers, and
decoders that attend to a tower."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.graph.base import Graph
from gnomon.graph.dtypes import STATE
from gnomon.graph.layers import Cut, Paged, Writer, write
from gnomon.graph.layers.cross import cross
from gnomon.graph.layers.ends import embedding, head
from gnomon.graph.layers.towers import stem, tail
from gnomon.graph.ops import Op, Rows
from gnomon.graph.passes.forward import forward_ops
from gnomon.graph.sizes import merged
from gnomon.graph.style import KernelStyle
from gnomon.graph.support import check_tower
from gnomon.graph.tape import TapeNode
from gnomon.spec import (
    CrossAttention,
    ImageTokens,
    Model,
    Strategy,
    Tower,
)
from gnomon.spec.formats import PLAIN_BITS

ALONE = Strategy()


def encoder_graph(
    model: Model, style: KernelStyle, length: int, dtype: str, *, head: bool, strategy: Strategy = ALONE
) -> Graph:
    """Whole sequences of `length` tokens in both directions; with `head`, what follows the layers too."""
    own = model if head else replace(model, tail=(), has_head=False)
    return _graph(own, style, Cut(seq=length, dtype=dtype, inference=True, tp=strategy.tp))


def diffusion_graph(model: Model, style: KernelStyle, length: int, source: int, dtype: str) -> Graph:
    """One step over `length` patches, which may attend to `source` tokens of a text: the image's, and the time's and
    the class's once per sample."""
    return _graph(model, style, Cut(seq=length, source=source, dtype=dtype, inference=True))


def decoder_graph(model: Model, style: KernelStyle, length: int, source: int, dtype: str) -> Graph:
    """Prompts of `length` tokens or decodes, which attend to `source` tokens of a tower; without a source, layers
    that attend to one are skipped."""
    # Those with an encoder of text or sound have short prompts, and their code makes logits for all of them.
    own = replace(model, stem=())
    return _graph(own, style, Cut(seq=length, source=source, dtype=dtype, inference=True), model.kind == "multimodal")


def tower_graph(tower: Tower, taken: ImageTokens, style: KernelStyle, strategy: Strategy, dtype: str) -> Graph:
    """Over a batch whose sequences are those of `taken`."""
    check_tower(tower, strategy.tp)
    cut = Cut(seq=taken.positions, grid=taken.grid, dtype=dtype, inference=True, tp=strategy.tp)
    patches, left = (Rows("prefills", float(each)) for each in (taken.patches, taken.merged / taken.sequences))

    def writer() -> Writer:
        return Writer(tower.network, cut, style)

    ops = [*forward_ops(stem(writer(), patches)), *_layers(tower.network, cut, style)]
    ops += forward_ops(tail(writer(), left, tower.intake.merge > 1))
    return Graph(tuple(replace(op, name=f"{tower.name}.{op.name}") for op in ops))


def crossing_graph(model: Model, style: KernelStyle, strategy: Strategy, dtype: str, source: int) -> Graph:
    """Cross-attention between the halves of a decoder's layers, over a cache: what a serving engine runs beside the
    decoder's own step."""
    how = Paged(dtype=dtype, kv_dtype=STATE, state_dtype=STATE)
    cut = Cut(tp=strategy.tp, dtype=STATE, matrix=dtype if dtype in PLAIN_BITS else "", paged=how, source=source)
    ops: list[Op] = []
    for block in merged(model.blocks):
        if block.cross is not None:
            writer = Writer(model, cut, style, block.formats)
            ops += forward_ops(_crossing(writer, block.cross), block.count)
    return Graph(tuple(ops))


def _crossing(writer: Writer, shape: CrossAttention) -> Iterator[TapeNode]:
    yield writer.norm("cross.norm", "in", "asking")
    yield from cross(writer, shape, "asking")
    yield from _reduced(writer)


def _reduced(writer: Writer) -> Iterator[TapeNode]:
    yield from writer.summed("cross", "crossed")


def _graph(model: Model, style: KernelStyle, cut: Cut, logits: bool = False) -> Graph:
    first, last = (Writer(model, cut, style) for _ in range(2))
    return Graph((*forward_ops(embedding(first)), *_layers(model, cut, style), *forward_ops(head(last, logits))))


def _layers(model: Model, cut: Cut, style: KernelStyle) -> Iterator[Op]:
    """All layers; those that attend to a source are skipped where there is none."""
    for block in merged(model.blocks):
        if isinstance(block.mixer, CrossAttention) and not cut.source:
            continue
        yield from forward_ops(write(Writer(model, cut, style, block.formats), block), block.count)
