"""Parts beside the halves of a layer, or before and after all layers: unsharded on every rank."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace

from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import Gemm, Rows
from gnomon.graph.style import Stream
from gnomon.graph.tape import TapeNode
from gnomon.spec import ConvolutionLayer, Embedding, Linear, Modulation, Norm
from gnomon.spec.parts import Part, count

ADDED = Stream(2, 1, 0, 0)
"""Rows of a table, looked up and added to the stream."""
ONCE = Rows("prefills")
"""One row for each sequence."""


def parts(
    writer: Writer, among: Iterable[Part], prefix: str, read: str, written: str = "", rows: Rows | None = None
) -> Generator[TapeNode, None, str]:
    """One after the other, from the tensor `read`; the last writes `written` where that is named. Those that run once
    for each sequence make something of their own."""
    found = list(among)
    lasting = [part for part in found if is_lasting(part)]
    for part in found:
        name = f"{prefix}.{part.name}"
        to = written if written and lasting and part is lasting[-1] else name
        yield from one(writer, part, name, (read,) if read else (), to, rows or writer.cut.rows)
        read = to if read and part in lasting else read
    return read


def is_lasting(part: Part) -> bool:
    """Whether the stream goes through it: not so a bias or a scale, which the kernel before it takes along, nor what
    runs once for each sequence."""
    table = isinstance(part, Modulation) or (isinstance(part, Embedding) and part.rows == 1)
    return not table and not (isinstance(part, Linear) and part.once)


def one(writer: Writer, part: Part, name: str, reads: tuple[str, ...], written: str, rows: Rows) -> Iterator[TapeNode]:
    """A part from what it reads, nothing where that is data, to the tensor `written`."""
    parameters, share = float(count(part.tensors())), writer.cut.share
    match part:
        case Linear(once=True):
            yield replace(once(writer, part, name, writer.vector or "".join(reads)), parameters=parameters)
        case Linear():
            node = writer.linear(name, part.name, "".join(reads), {written: part.outputs}, part.inputs, rows)
            yield replace(_from_data(writer.as_stored(node), reads), parameters=parameters)
        case Norm():
            norm = writer.style.lone_norm or writer.style.norm
            node = writer.elementwise(name, norm, part.width, reads, {written: part.width * share}, True, rows)
            yield replace(node, parameters=parameters)
        case Embedding(rows=1) | Modulation():
            yield TapeNode(name=name, parameters=parameters)
        case Embedding():
            added, wide = writer.style.residual if writer.cut.inference else ADDED, min(part.width, writer.model.hidden)
            node = writer.elementwise(name, added, wide, reads, {written: wide * share}, False, rows)
            yield replace(node, parameters=parameters, passes_on=bool(reads))
        case ConvolutionLayer():
            yield replace(_convolution(writer, part, name, reads, written, rows), parameters=parameters)


def once(writer: Writer, part: Linear, name: str, read: str) -> TapeNode:
    """A matrix on one row of a sequence. What the first reads is data: sines of a time, a class."""
    node = writer.linear(name, part.name, read, {name: part.outputs}, part.inputs, ONCE)
    writer.vector = name
    return _from_data(writer.as_stored(node), (read,) if read else ())


def _from_data(node: TapeNode, reads: tuple[str, ...]) -> TapeNode:
    return node if reads else replace(node, reads=(), keeps=(), detached=True)


def _convolution(
    writer: Writer, part: ConvolutionLayer, name: str, reads: tuple[str, ...], written: str, rows: Rows
) -> TapeNode:
    """As a GEMM of what each place looks at."""
    k = part.inputs // part.groups * part.kernel
    node = writer.linear(name, part.name, "".join(reads), {written: part.outputs}, k, rows, dtype=writer.cut.dtype)
    (gemm,) = node.forward
    assert isinstance(gemm, Gemm)
    if part.groups > 1 and not writer.cut.inference:
        gemm = replace(gemm, n=part.outputs // part.groups, batch=part.groups)
    return _from_data(replace(node, forward=(gemm,)), reads)
