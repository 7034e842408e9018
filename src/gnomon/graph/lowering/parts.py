"""Parts beside the halves of a layer, or before and after all layers: unsharded on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gnomon.graph.lowering.linear import linear
from gnomon.graph.lowering.site import STATE, Site, stream
from gnomon.graph.ops import TOKENS, Gemm, Op, Size
from gnomon.spec import ConvolutionLayer, Embedding, Linear, Norm
from gnomon.spec.parts import Part


def parts(among: Iterable[Part], site: Site, prefix: str, rows: Size = TOKENS) -> Iterator[Op]:
    for part in among:
        yield from _part(part, site, f"{prefix}.{part.name}", rows)


def _part(part: Part, site: Site, name: str, rows: Size) -> Iterator[Op]:
    match part:
        case Linear():
            yield from linear(name, part.name, part.outputs, part.inputs, site, rows)
        case Norm():
            yield stream(name, part.width, 1, 1, site.count, rows)
        case Embedding(rows=entries):
            # A single row is a bias or a scale, which the kernel before it takes along.
            yield from [stream(name, part.width, 2, 1, site.count, rows)] if entries > 1 else []
        case ConvolutionLayer(groups=groups):
            k = part.inputs // groups * part.kernel
            yield Gemm(name=name, m=rows, n=part.outputs // groups, k=k, batch=groups, dtype=STATE, count=site.count)
