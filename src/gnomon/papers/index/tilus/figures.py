"""Tilus (Ding et al. 2025): one row times a matrix whose weights are narrow, beside fp16."""

from __future__ import annotations

from collections.abc import Iterator

import gnomon
from gnomon.papers.base import Ours

CARD, ROWS, OUTPUTS, INPUTS = "L40S", 1, 57344, 8192


def _us(dtype: str) -> float:
    (row,) = gnomon.ops([{"op": "gemm", "dtype": dtype, "m": ROWS, "n": OUTPUTS, "k": INPUTS}], on=CARD)
    return float(row["time_us"])


def figures() -> Iterator[Ours]:
    for bits in (4, 8):
        yield f"{bits} bits over fp16, one row", _us("fp16") / _us(f"int{bits}-weights")
