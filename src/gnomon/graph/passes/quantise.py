"""Operands of GEMMs in narrower formats than the activations around them."""

from __future__ import annotations

from dataclasses import replace

from gnomon.graph.dtypes import gemm_format, width
from gnomon.graph.layers.writer import WIDE, Writer
from gnomon.graph.ops import Elementwise, Gemm, Op, Rows
from gnomon.graph.streams import streamed
from gnomon.graph.style import Stream
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
    return _narrowed(node, gemm, writer) if width(gemm.dtype) < writer.value else node


def _frozen(node: TapeNode, k: float, gemm: Gemm, writer: Writer) -> TapeNode:
    """Operands of a GEMM whose weights are frozen: cast as others are, with nothing transposed for a gradient of the
    weights and nothing saved."""
    style = writer.style
    if style.wide_stream and gemm.batch == 1 and writer.sizes[node.reads[0]] >= WIDE * k:
        there, back, sizes = style.widen.backward, style.widen, (k, k)
    elif width(gemm.dtype) < writer.value:
        share = width(gemm.dtype) / writer.value
        assert isinstance(gemm.n, int)
        there = back = Stream(1, share, 0, 0, efficiency=style.cast.efficiency)
        sizes = k, gemm.n
    else:
        return node
    casts = [
        streamed(f"{node.name}.cast{of}", one, size * writer.value, _rows(gemm))
        for of, one, size in (("", there, sizes[0]), (".by_input", back, sizes[1]))
    ]
    wide = style.wide_stream and width(gemm.dtype) >= writer.value
    dgrad = () if node.detached else (*node.dgrad, casts[1]) if wide else (casts[1], *node.dgrad)
    narrow = node.parameters if width(gemm.dtype) < writer.value else 0.0
    return replace(node, forward=(casts[0], *node.forward), dgrad=dgrad, narrow_parameters=narrow)


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
    """Operands in a narrower format: the input and the gradient of the result are each cast and transposed; the copy
    for the gradient of the weight is saved."""
    (kept,), style, rows = node.keeps, writer.style, _rows(gemm)
    assert isinstance(gemm.n, int) and isinstance(gemm.k, int)
    share = width(gemm.dtype) / writer.value
    writer.sizes[kept + NARROW] = writer.sizes[kept] * share
    before, after = gemm.k * writer.value, gemm.n * writer.value
    turned = streamed(f"{node.name}.transpose", Stream(share, share, 0, 0), before, rows)
    return replace(
        node,
        forward=(streamed(f"{node.name}.cast", style.cast, before, rows), *node.forward),
        dgrad=(streamed(f"{node.name}.cast.by_input", style.cast.backward, after, rows), *node.dgrad),
        wgrad=(turned, *node.wgrad) if style.late_transpose else node.wgrad,
        writes=(*node.writes, kept + NARROW),
        keeps=(kept + NARROW,),
        narrow_parameters=node.parameters,
    )
