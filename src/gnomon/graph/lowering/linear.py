"""Weight matrices, in whatever format they are stored."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import width
from gnomon.graph.lowering.site import STATE, Site
from gnomon.graph.ops import TOKENS, Elementwise, Gemm, Op, Size


def linear(name: str, role: str, n: int, k: int, site: Site, rows: Size = TOKENS) -> Iterator[Op]:
    """A weight matrix of some role (`spec.parts.Tensor`) that turns k numbers of a row into n.

    In eight bits its input is quantised first: a row is read for its largest value, then again.
    """
    if width(site.dtype) < width(STATE):
        yield Elementwise(
            name=f"{name}.quantise",
            rows=rows,
            read_per_row=2 * k * width(STATE),
            written_per_row=k * width(site.dtype),
            count=site.count,
        )
    yield Gemm(name=name, m=rows, n=n, k=k, dtype=site.dtype, count=site.count)
