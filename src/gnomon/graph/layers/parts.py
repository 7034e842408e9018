"""Parts beside the halves of a layer, or before and after all layers: unsharded on every rank."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace

from gnomon.graph.layers.writer import Writer, bare
from gnomon.graph.ops import Gemm, Rows
from gnomon.graph.style import Stream
from gnomon.graph.tape import TapeNode
from gnomon.spec import ConvolutionLayer, Embedding, Linear, Norm
from gnomon.spec.parts import Part, count

ADDED = Stream(2, 1, 0, 0)
"""Rows of a table, looked up and added to the stream."""


def parts(
    writer: Writer, among: Iterable[Part], prefix: str, read: str, written: str = "", rows: Rows | None = None
) -> Generator[TapeNode, None, str]:
    """One after the other, from the tensor `read`; the last writes `written` where that is named."""
    found = list(among)
    lasting = [part for part in found if not (isinstance(part, Embedding) and part.rows == 1)]
    for part in found:
        name = f"{prefix}.{part.name}"
        to = written if written and lasting and part is lasting[-1] else name
        yield from _part(writer, part, name, (read,) if read else (), to, rows or writer.cut.rows)
        read = to if read and part in lasting else read
    return read


def _part(
    writer: Writer, part: Part, name: str, reads: tuple[str, ...], written: str, rows: Rows
) -> Generator[TapeNode, None, None]:
    parameters, share = float(count(part.tensors())), writer.cut.share
    match part:
        case Linear():
            node = writer.linear(name, part.name, "".join(reads), {written: part.outputs}, part.inputs, rows)
            yield replace(node, parameters=parameters)
        case Norm():
            norm = writer.style.lone_norm or writer.style.norm
            node = writer.elementwise(name, norm, part.width, reads, {written: part.width * share}, True, rows)
            yield replace(node, parameters=parameters)
        case Embedding(rows=1):
            # A bias or a scale, which the kernel before it takes along.
            yield TapeNode(name=name, parameters=parameters)
        case Embedding():
            node = writer.elementwise(name, ADDED, part.width, reads, {written: part.width * share}, False, rows)
            yield replace(node, parameters=parameters, passes_on=bool(reads))
        case ConvolutionLayer(groups=groups):
            n, k = part.outputs // groups, part.inputs // groups * part.kernel
            yield from bare(Gemm(name=name, m=rows, n=n, k=k, batch=groups, dtype=writer.cut.dtype))
