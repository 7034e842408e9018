"""The kernels of a style that stream memory, as operators."""

from __future__ import annotations

from gnomon.graph.ops import Elementwise, Op, Size
from gnomon.graph.style import Stream


def streamed(name: str, how: Stream, size: float, rows: Size, by_row: bool = False, uncached: float = 0.0) -> Op:
    """A stream over `size` bytes per row, in as many launches as it takes; it moves nothing where it is fused. One
    less efficient than `uncached` gains nothing from a cache."""
    size /= how.kernels
    return Elementwise(
        name=name, rows=rows, read_per_row=how.reads * size, written_per_row=how.writes * size,
        count=how.kernels, efficiency=how.efficiency, by_row=by_row, cached=how.efficiency >= uncached,
    )  # fmt: skip
