"""Weight matrices, in whatever format they are stored."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.lowering.site import Site
from gnomon.graph.ops import TOKENS, Gemm, Op, Size
from gnomon.graph.passes.quantise import quantised


def linear(name: str, role: str, n: int, k: int, site: Site, rows: Size = TOKENS) -> Iterator[Op]:
    """A weight matrix of some role (`spec.parts.Tensor`) that turns k numbers of a row into n, and before it what
    narrows its input."""
    yield from quantised(Gemm(name=name, m=rows, n=n, k=k, dtype=site.gemm_dtype(role), count=site.count))
