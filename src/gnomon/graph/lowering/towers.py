"""A tower: its stem, its bidirectional blocks, and the projection to the decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.errors import InputError
from gnomon.graph.base import Graph
from gnomon.graph.dtypes import width
from gnomon.graph.lowering.plain import Kernels, check_plain, layers, matrix
from gnomon.graph.lowering.site import STATE
from gnomon.graph.lowering.streams import streamed
from gnomon.graph.ops import TOKENS, Elementwise, Gemm, Op, Rows
from gnomon.graph.style import POINTWISE, KernelStyle
from gnomon.spec import (
    AttentionMixer,
    ConvolutionLayer,
    DenseFfn,
    Embedding,
    ImageTokens,
    Linear,
    Norm,
    Part,
    Strategy,
    Tower,
)


def tower_graph(tower: Tower, taken: ImageTokens, kernels: Kernels, strategy: Strategy, dtype: str) -> Graph:
    """Over a batch whose sequences are those of `taken`."""
    check_tower(tower, strategy.tp)
    style = kernels.style
    how = kernels.over(tower.blocks, length=taken.positions, grid=taken.grid)
    left = Rows("prefills", taken.merged / taken.sequences)
    ops = [
        *_stem(tower, style, dtype, Rows("prefills", float(taken.patches))),
        *layers(tower.blocks, tower.hidden, strategy, dtype, how),
        *streamed("last_norm", style.norm, tower.hidden, int(tower.final_norm)),
        *_tail(tower, style, dtype, left),
    ]
    return Graph(tuple(replace(op, name=f"{tower.name}.{op.name}") for op in ops))


def check_tower(tower: Tower, tp: int) -> None:
    """Raise where a tower has layers without plain kernels, or such that `tp` ranks cannot share."""
    why = check_plain(tower.blocks)
    if why:
        raise InputError(f"its {tower.name} part cannot be priced yet: it has {why}", where="model")
    for block in tower.blocks:
        heads = block.mixer.heads if isinstance(block.mixer, AttentionMixer) else tp
        inner = block.ffn.inner if isinstance(block.ffn, DenseFfn) else tp
        for what, size in (("attention heads", heads), ("feed-forward channels", inner)):
            if size % tp:
                near = max(degree for degree in range(1, tp) if not size % degree)
                message = f"its {tower.name} part has {size} {what}, which {tp} does not divide"
                raise InputError(message, where="--tp", hint=f"The nearest degree that works is {near}.")


def stem_ops(stem: tuple[Part, ...], hidden: int, style: KernelStyle, dtype: str, ends: Rows = TOKENS) -> Iterator[Op]:
    """Convolutions and matrices end in so many rows; convolutions before the last make as many more as it skips."""
    steps = 1
    for conv in reversed([part for part in stem if isinstance(part, ConvolutionLayer)]):
        rows = Rows(ends.of, ends.factor * steps)
        k = conv.inputs // conv.groups * conv.kernel
        yield Gemm(name=conv.name, m=rows, n=conv.outputs, k=k, dtype=dtype)
        if conv.stride > 1 or steps > 1:
            yield from streamed(f"{conv.name}.activation", style.plain, conv.outputs, 1, rows)
        steps *= conv.stride
    for part in stem:
        if isinstance(part, Linear):
            yield matrix(part, dtype, rows=ends)
        elif isinstance(part, Norm):
            yield from streamed(part.name, style.norm, part.width, 1)
        elif isinstance(part, Embedding) and part.rows > 1:
            yield from streamed(part.name, style.residual, hidden, 1)


def _stem(tower: Tower, style: KernelStyle, dtype: str, patches: Rows) -> Iterator[Op]:
    """The stem; a tower over token ids begins with an embedding."""
    if not any(isinstance(part, ConvolutionLayer | Linear) for part in tower.stem):
        yield from streamed("embedding", POINTWISE, tower.hidden, 1)
    yield from stem_ops(tower.stem, tower.hidden, style, dtype, patches)


def _tail(tower: Tower, style: KernelStyle, dtype: str, left: Rows) -> Iterator[Op]:
    """Matrices work on the tokens that are left, norms on as many numbers as there are."""
    matrices = [part for part in tower.tail if isinstance(part, Linear)]
    if matrices and tower.intake.merge > 1 and matrices[0].inputs == tower.hidden:
        size = tower.hidden * width(STATE)
        yield Elementwise(name="pool", rows=TOKENS, read_per_row=size, written_per_row=0.0)
    for part in tower.tail:
        if isinstance(part, Norm):
            yield from streamed(part.name, style.norm, part.width, 1, TOKENS if part.width == tower.hidden else left)
    for part in matrices:
        yield matrix(part, dtype, rows=left)
        if part is not matrices[-1]:
            yield from streamed(f"{part.name}.activation", style.plain, part.outputs, 1, left)
