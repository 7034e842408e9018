"""The Fused Kernel Library (Amoros et al. 2025): many small kernels against one that does all their work."""

from __future__ import annotations

from collections.abc import Iterator

import gnomon
from gnomon.papers.base import Ours

ON = "RTX-A2000-12GB"
CROPS, READ, MADE = 50, 60 * 120 * 3 * 1.0, 64 * 128 * 3 * 4.0
"""Crops, and the bytes of one as it is cut out and as the network takes it."""
STEPS = ((READ, MADE), (MADE, MADE), (MADE, MADE), (MADE, MADE), (MADE, MADE))
"""Bytes read and written by each kernel of one crop."""


def _us(read: float, written: float) -> float:
    row = {"op": "elementwise", "dtype": "fp32", "bytes_read": read, "bytes_written": written}
    return float(gnomon.ops([row], on=ON)[0]["time_us"])


def figures() -> Iterator[Ours]:
    apart = CROPS * sum(_us(*one) for one in STEPS)
    yield "50 crops: kernels sooner by", apart / _us(CROPS * READ, CROPS * MADE)
