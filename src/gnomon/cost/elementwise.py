"""Operators that only move memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

START = {"memory": 0.8, "cached": 1.5, "launch_us": 2.0, "overlap": 2.0}
LOWEST = {"memory": 0.3, "cached": 0.5, "launch_us": 0.5, "overlap": 1.0}
HIGHEST = {"memory": 1.0, "cached": 6.0, "launch_us": 6.0, "overlap": 8.0}


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """What fits in half of L2 was just written there and streams at a multiple of memory bandwidth."""
    moved = shape["bytes_read"] + shape["bytes_written"]
    bandwidth = chip.memory_bandwidth_bytes_s
    share = 1 / (1 + (moved / (0.5 * chip.l2_bytes)) ** 2)
    rate = bandwidth * (share * c["cached"] + (1 - share) * c["memory"])
    return np.where(moved > 0, moved / rate + c["launch_us"] * 1e-6, 0.0)
