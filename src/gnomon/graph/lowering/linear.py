"""Weight matrices, in whatever format they are stored."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import gemm_format, width
from gnomon.graph.lowering.site import STATE, Site
from gnomon.graph.ops import TOKENS, Elementwise, Gemm, Op, Size


def linear(name: str, role: str, n: int, k: int, site: Site, rows: Size = TOKENS) -> Iterator[Op]:
    """A weight matrix of some role (`spec.parts.Tensor`) that turns k numbers of a row into n.

    Where its input is narrowed too, that happens first: a row is read for its largest values, then again.
    """
    dtype = site.gemm_dtype(role)
    narrow = gemm_format(dtype).inputs
    if narrow < width(STATE):
        yield Elementwise(
            name=f"{name}.quantise",
            rows=rows,
            read_per_row=2 * k * width(STATE),
            written_per_row=k * narrow,
            narrows=dtype,
            count=site.count,
        )
    yield Gemm(name=name, m=rows, n=n, k=k, dtype=dtype, count=site.count)
