"""The kernels of a style that stream memory, as operators."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.graph.dtypes import width
from gnomon.graph.lowering.site import STATE
from gnomon.graph.ops import TOKENS, Elementwise, Op, Rows
from gnomon.graph.style import STREAMING_EFFICIENCY, Stream


def streamed(name: str, how: Stream, values: float, count: int, rows: Rows = TOKENS) -> Iterator[Op]:
    """`count` times a stream over `values` numbers per row, in as many launches as it takes; nothing if it is fused."""
    if not count or not how.reads + how.writes:
        return
    size = values * width(STATE) / how.kernels
    yield Elementwise(
        name=name,
        rows=rows,
        read_per_row=how.reads * size,
        written_per_row=how.writes * size,
        count=count * how.kernels,
        efficiency=how.efficiency,
        cached=how.efficiency >= STREAMING_EFFICIENCY,
    )
