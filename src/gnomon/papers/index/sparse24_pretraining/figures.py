"""2:4 sparsity in training (Hu et al. 2024): what sparse feed-forwards bring on an A100, as others measured it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gnomon
from gnomon.catalog import chip
from gnomon.papers.base import Ours

CARD, ENGINE = "A100-SXM-80GB", "torch"
ROWS, NARROW, WIDE = 13008, 1024, 4096
FFN_ROWS, FFN = 16384, ((2048, 6144), (6144, 2048))
HALF, SPARSE = 2.0, 1.125
MILLI = 1e-3


def _ms(rows: list[dict[str, Any]]) -> float:
    return sum(float(row["time_us"]) for row in gnomon.ops(rows, on=CARD)) * MILLI


def _gemm(m: int, n: int, k: int, dtype: str) -> dict[str, Any]:
    return {"op": "gemm", "dtype": dtype, "m": m, "n": n, "k": k}


def _linear_ms(rows: int, inputs: int, outputs: int, *, sparse: bool) -> float:
    """Forward, by input and by weight; sparse weights are pruned and packed for both first."""
    weights, dtype = inputs * outputs, "bf16-sparse" if sparse else "bf16"
    packed = {"op": "elementwise", "dtype": "bf16", "bytes_read": weights * HALF, "bytes_written": weights * 2 * SPARSE}
    gemms = [_gemm(rows, outputs, inputs, dtype), _gemm(rows, inputs, outputs, dtype)]
    return _ms([*gemms, _gemm(outputs, inputs, rows, "bf16"), *([packed] if sparse else [])])


def figures() -> Iterator[Ours]:
    card = chip(CARD)
    yield "rate of sparse over dense on Ampere", card.sparse_flops["bf16"] / card.rates_flops["bf16"]
    for inputs, outputs in ((NARROW, WIDE), (WIDE, NARROW)):
        dense, sparse = (_linear_ms(ROWS, inputs, outputs, sparse=one) for one in (False, True))
        yield f"linear layer, {inputs:,} to {outputs:,}, forward and backward", dense / sparse
    yield "linear layer, dense, forward and backward", _linear_ms(ROWS, NARROW, WIDE, sparse=False)
    for word in ("dense", "sparse"):
        found = sum(_linear_ms(FFN_ROWS, *sizes, sparse=word == "sparse") for sizes in FFN)
        yield f"feed-forward of 16,384 rows, {word}", found
