"""Parts beside the halves of a layer, or before and after all layers: unsharded on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gnomon.graph.layers.writer import Writer, bare
from gnomon.graph.ops import TOKENS, Gemm, Rows
from gnomon.graph.style import Stream
from gnomon.graph.tape import TapeNode
from gnomon.spec import ConvolutionLayer, Embedding, Linear, Norm
from gnomon.spec.parts import Part


def parts(writer: Writer, among: Iterable[Part], prefix: str, rows: Rows = TOKENS) -> Iterator[TapeNode]:
    for part in among:
        yield from _part(writer, part, f"{prefix}.{part.name}", rows)


def _part(writer: Writer, part: Part, name: str, rows: Rows) -> Iterator[TapeNode]:
    match part:
        case Linear():
            yield writer.linear(name, part.name, "", {name: part.outputs}, part.inputs, rows, part.bias)
        case Norm():
            norm = writer.style.lone_norm or writer.style.norm
            yield writer.elementwise(name, norm, part.width, (), {}, False, rows)
        case Embedding(rows=entries) if entries > 1:
            # A single row is a bias or a scale, which the kernel before it takes along.
            yield writer.elementwise(name, Stream(2, 1, 0, 0), part.width, (), {}, False, rows)
        case ConvolutionLayer(groups=groups):
            n, k = part.outputs // groups, part.inputs // groups * part.kernel
            yield from bare(Gemm(name=name, m=rows, n=n, k=k, batch=groups, dtype=writer.cut.dtype))
