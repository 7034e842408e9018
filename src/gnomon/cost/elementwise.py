"""Operators that only move memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

COEFFICIENTS = {
    "memory": (0.8, 0.3, 1.0),
    "cached": (1.2, 0.5, 6.0),
    "launch_us": (1.7, 0.5, 6.0),
    "block_gb_s": (64.0, 10.0, 1000.0),
}
"""Where a fit starts, and the range in which each coefficient means what it says."""
HELD = 0.6
"""Of L2, what may lie there of the tensors that are read when half of it is still found."""
LONGEST = 256 * 1024
"""Bytes of a row beyond which kernels cut it up."""


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """What L2 holds was just written there and streams at a multiple of memory bandwidth; a kernel with one
    thread block per row takes no less than one block needs for one row, however few there are."""
    read = shape["bytes_read"]
    moved = read + shape["bytes_written"]
    share = shape.get("cached", 1.0) / (1 + (np.maximum(read, moved - read) / (HELD * chip.l2_bytes)) ** 2)
    streamed = moved / (chip.memory_bandwidth_bytes_s * shape.get("efficiency", 1.0))
    body = streamed * (share / c["cached"] + (1 - share) / c["memory"])
    row = np.minimum(shape.get("row_bytes", 0.0), LONGEST) / (c["block_gb_s"] * 1e9)
    return np.where(moved > 0, np.hypot(body, row) + c["launch_us"] * 1e-6, 0.0)
