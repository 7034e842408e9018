"""Low-Rank GEMM (Metere 2025): square matrices through factors that are found in every call, on an RTX 4090."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import gnomon
from gnomon.papers.base import Ours

CHIP, ENGINE = "RTX-4090", "torch"
RANK, MORE, ITERATIONS = 64, 10, 2
PASSES = 2 * ITERATIONS + 2
"""GEMMs of one matrix with a few columns: a projection, two of each iteration, and one back."""
WIDE, HALF, NARROW = 4.0, 2.0, 1.0
SMALL_MS = 4.10
"""All of a call at N = 1,024, where its GEMMs take next to nothing."""
SMALL = 1024
SIZES = (20480, 16384, 8192, 4096)
STEP = 1024
MILLI, TERA = 1e-3, 1e12


def _ms(rows: Sequence[dict[str, Any]]) -> float:
    return sum(float(row["time_us"]) for row in gnomon.ops([{"engine": ENGINE} | row for row in rows], on=CHIP)) * MILLI


def _gemm(m: int, n: int, k: int, dtype: str) -> dict[str, Any]:
    return {"op": "gemm", "dtype": dtype, "m": m, "n": n, "k": k}


def _cast(values: float, read: float, written: float) -> dict[str, Any]:
    return {"op": "elementwise", "dtype": "fp32", "bytes_read": values * read, "bytes_written": values * written}


@cache
def _gemms_ms(n: int) -> float:
    """Of both matrices with a few columns, and the product of what is left of them."""
    columns = RANK + MORE
    thin = _ms([_gemm(n, columns, n, "fp32")])
    return 2 * PASSES * thin + _ms([_gemm(RANK, RANK, n, "fp32"), _gemm(n, n, RANK, "fp32")])


def _factors_ms(n: int) -> float:
    """QR and SVD are what the smallest size takes beside its GEMMs."""
    return _gemms_ms(n) + SMALL_MS - _gemms_ms(SMALL)


@cache
def _plain_ms(n: int) -> float:
    return _ms([_gemm(n, n, n, "fp32")])


@cache
def _half_ms(n: int) -> float:
    casts = [_cast(n * n, WIDE, HALF), _cast(n * n, WIDE, HALF), _cast(n * n, HALF, WIDE)]
    return _ms([_gemm(n, n, n, "fp16"), *casts])


def figures() -> Iterator[Ours]:
    largest = SIZES[0]
    yield "20,480: factors over fp32", _plain_ms(largest) / _factors_ms(largest)
    yield "20,480: rate of factors", 2 * largest**3 / (_factors_ms(largest) * MILLI) / TERA
    for n in SIZES:
        yield f"{n:,}: factors", _factors_ms(n)
        yield f"{n:,}: fp32", _plain_ms(n)
        yield f"{n:,}: fp16", _half_ms(n)
    yield "memory of three matrices in fp8 under fp32", 100 * (1 - NARROW / WIDE)
    sizes = range(STEP, largest + 1, STEP)
    yield "N from which factors are fastest", next((n for n in sizes if _factors_ms(n) < _half_ms(n)), largest)
