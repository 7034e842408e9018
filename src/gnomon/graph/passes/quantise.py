"""Operands of GEMMs in narrower formats than the activations around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gnomon.graph.dtypes import gemm_format, width
from gnomon.graph.layers.writer import WIDE, Writer
from gnomon.graph.ops import Elementwise, Gemm, Op, Rows
from gnomon.graph.streams import streamed
from gnomon.graph.style import KernelStyle, Stream
from gnomon.graph.tape import TapeNode

NARROW = ".narrow"
"""Names the copy of a tensor that GEMMs read, where they run in a narrower format."""


def quantised(op: Op) -> tuple[Op, ...]:
    """Before a GEMM of serving whose inputs are narrow: a row is read for its largest values, then again."""
    if not isinstance(op, Gemm) or not isinstance(op.k, int):
        return (op,)
    narrow, wide = gemm_format(op.dtype).inputs, width("bf16")
    if narrow >= wide:
        return (op,)
    first = Elementwise(
        name=f"{op.name}.quantise", rows=op.m, read_per_row=2 * op.k * wide, written_per_row=op.k * narrow,
        narrows=op.dtype, count=op.count,
    )  # fmt: skip
    return (first, op)


def trained(node: TapeNode, writer: Writer) -> TapeNode:
    """A GEMM of training: with operands of eight bits, or with a copy of a wide input for it alone."""
    gemm = next((op for op in node.forward if isinstance(op, Gemm)), None)
    if gemm is None or not isinstance(gemm.k, int) or not (node.wgrad or node.frozen):
        return node
    if node.frozen:
        return _frozen(node, gemm.k, gemm, writer)
    if writer.style.wide_stream and gemm.batch == 1 and writer.sizes[node.reads[0]] >= WIDE * gemm.k:
        return _autocast(node, gemm.k, gemm, writer)
    return _narrowed(node, gemm, writer) if gemm_format(gemm.dtype).inputs < writer.value else node


def _frozen(node: TapeNode, k: float, gemm: Gemm, writer: Writer) -> TapeNode:
    """Operands of a GEMM whose weights are frozen: cast as others are, with nothing transposed for a gradient of the
    weights and nothing saved."""
    style, narrow = writer.style, gemm_format(gemm.dtype).inputs < writer.value
    if style.wide_stream and gemm.batch == 1 and writer.sizes[node.reads[0]] >= WIDE * k:
        there, back, sizes = style.widen.backward, style.widen, (k, k)
    elif narrow:
        assert isinstance(gemm.n, int)
        there = back = _Casts(style, writer.value).rows
        sizes = k, gemm.n
    else:
        return node
    casts = [
        streamed(f"{node.name}.cast{of}", one, size * writer.value, _rows(gemm))
        for of, one, size in (("", there, sizes[0]), (".by_input", back, sizes[1]))
    ]
    dgrad = (casts[1], *_in(node.dgrad, style.recipe.dgrad)) if narrow else (*node.dgrad, casts[1])
    return replace(
        node,
        forward=(casts[0], *node.forward),
        dgrad=() if node.detached else dgrad,
        narrow_parameters=node.parameters if narrow else 0.0,
    )


def _rows(gemm: Gemm) -> Rows:
    """Of all its parts together."""
    assert isinstance(gemm.m, Rows) and isinstance(gemm.batch, int)
    return Rows(gemm.m.of, gemm.m.factor * gemm.batch)


def _autocast(node: TapeNode, k: float, gemm: Gemm, writer: Writer) -> TapeNode:
    """The input narrowed for this GEMM alone, which saves the copy; its gradient widened again."""
    copy, rows, size = f"{node.name}.cast", _rows(gemm), k * writer.value
    writer.sizes[copy] = size * rows.factor
    widen = writer.style.widen
    return replace(
        node,
        forward=(streamed(copy, widen.backward, size, rows), *node.forward),
        dgrad=(*node.dgrad, streamed(f"{copy}.by_input", widen, size, rows)),
        writes=(*node.writes, copy),
        keeps=(copy,),
    )


def _narrowed(node: TapeNode, gemm: Gemm, writer: Writer) -> TapeNode:
    """Operands in a narrower format: the input and the gradient of the result are each cast along both sides, and the
    copy that the gradient of the weight reads is saved. A kernel of its own that casts it again reads 16 bits, and
    those are saved."""
    (kept,), style, rows = node.keeps, writer.style, _rows(gemm)
    assert isinstance(gemm.n, int) and isinstance(gemm.k, int)
    recipe, casts = style.recipe, _Casts(style, writer.value)
    before, after = gemm.k * writer.value, gemm.n * writer.value
    saves_copy = recipe.narrow_wgrad and not casts.again
    if saves_copy:
        writer.sizes[kept + NARROW] = writer.sizes[kept] * recipe.saved_bytes / writer.value
    saved = (kept + NARROW,) if saves_copy else ()
    each = gemm.launches  # an expert's rows are cast by a kernel of their own where it has GEMMs of its own
    late = (streamed(f"{node.name}.transpose", one, before, rows) for one in casts.late)
    return replace(
        node,
        forward=(streamed(f"{node.name}.cast", _times(each, casts.input), before, rows), *node.forward),
        dgrad=(
            streamed(f"{node.name}.cast.by_input", _times(each, casts.gradient), after, rows),
            *_in(node.dgrad, recipe.dgrad),
        ),
        wgrad=(*late, *_in(node.wgrad, recipe.wgrad)),
        writes=(*node.writes, *saved),
        keeps=saved or (kept,),
        narrow_parameters=node.parameters,
    )


def _times(many: int, kernel: Stream) -> Stream:
    """As much traffic by so many kernels."""
    return replace(kernel, kernels=many * kernel.kernels)


def _in(ops: Iterable[Op], dtype: str) -> Iterator[Op]:
    """GEMMs of a gradient in a format."""
    return (replace(op, dtype=dtype) if isinstance(op, Gemm) else op for op in ops)


class _Casts:
    """What casting an operand moves, in values of 16 bits: an input forward, and its copy for the gradient of the
    weight where that is later; the gradient of the result, which both gradients read."""

    def __init__(self, style: KernelStyle, value: float) -> None:
        recipe = style.recipe
        row, amax = recipe.row_bytes / value, recipe.amax_passes
        column = 0.0 if recipe.reads_either else recipe.column_bytes / value
        self.again = style.late_transpose and recipe.narrow_wgrad and not recipe.transposes
        """The columns are cast from 16 bits by a kernel of its own."""
        alone = self.rows = Stream(amax + 1, row, 0, 0, amax + 1)
        passes = recipe.column_passes
        later = Stream(passes + 1, column, 0, 0, passes + 1) if self.again else Stream(row, column, 0, 0)
        split = style.late_transpose and recipe.narrow_wgrad
        self.late: tuple[Stream, ...] = (later,) if split else ()
        if split or not recipe.narrow_wgrad:
            self.input, self.gradient = alone, _both(alone, *self.late)
        else:
            self.input = self.gradient = Stream(recipe.reads, row + column, 0, 0, round(recipe.reads))


def _both(first: Stream, *then: Stream) -> Stream:
    parts = (first, *then)
    reads, writes = sum(one.reads for one in parts), sum(one.writes for one in parts)
    return Stream(reads, writes, 0, 0, sum(one.kernels for one in parts))
