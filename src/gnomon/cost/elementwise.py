"""Operators that only move memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

COEFFICIENTS = {
    "memory": (0.8, 0.3, 1.0),
    "cached": (1.5, 0.5, 6.0),
    "launch_us": (2.0, 0.5, 6.0),
}
"""Where a fit starts, and the range in which each coefficient means what it says."""


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """What fits in half of L2 was just written there and streams at a multiple of memory bandwidth."""
    moved = shape["bytes_read"] + shape["bytes_written"]
    bandwidth = chip.memory_bandwidth_bytes_s
    share = shape.get("cached", 1.0) / (1 + (moved / (0.5 * chip.l2_bytes)) ** 2)
    rate = bandwidth * (share * c["cached"] + (1 - share) * c["memory"])
    return np.where(moved > 0, moved / (rate * shape.get("pace", 1.0)) + c["launch_us"] * 1e-6, 0.0)
