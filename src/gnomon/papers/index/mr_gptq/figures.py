"""MR-GPTQ (Egiazarian et al. 2025): linear layers and prompts in fp4 with rotated inputs, beside bf16."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import gnomon
from gnomon.papers.base import Ours

B200, RTX = "B200", "RTX-5090"
LAYERS = {B200: (57344, 8192), RTX: (51200, 5120)}
"""Outputs and inputs."""
FORMATS = {"mxfp4": "mxfp4-mxfp4", "nvfp4": "nvfp4"}
NARROW_BYTES = {"mxfp4": 0.5 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
WIDE_BYTES = 2.0
BATCHES = {B200: (128, 512, 2048, 8192), RTX: (64, 512, 2048)}
PROMPT, PROMPTS = 128, (1, 2, 4, 8, 16, 32, 64)
TERA, MICRO = 1e12, 1e-6


@cache
def _gemm_s(chip: str, rows: int, dtype: str) -> float:
    n, k = LAYERS[chip]
    (row,) = gnomon.ops([{"op": "gemm", "dtype": dtype, "m": rows, "n": n, "k": k}], on=chip)
    return float(row["time_us"]) * MICRO


@cache
def _rotated_s(chip: str, rows: int, dtype: str) -> float:
    """A pass that reads inputs in 16 bits, and writes them rotated and rounded."""
    values = rows * LAYERS[chip][1]
    moved = {"bytes_read": values * WIDE_BYTES, "bytes_written": values * NARROW_BYTES[dtype]}
    (row,) = gnomon.ops([{"op": "elementwise", "dtype": "bf16", **moved}], on=chip)
    return float(row["time_us"]) * MICRO


def _sooner(chip: str, rows: int, dtype: str, *, rotated: bool = False) -> float:
    narrow = _gemm_s(chip, rows, FORMATS[dtype]) + (_rotated_s(chip, rows, dtype) if rotated else 0.0)
    return _gemm_s(chip, rows, "bf16") / narrow


def _rate(chip: str, rows: int) -> float:
    n, k = LAYERS[chip]
    return 2 * rows * n * k / _gemm_s(chip, rows, "bf16") / TERA


@cache
def _prompts(model: str, count: int) -> float:
    plain, narrow = (
        gnomon.predict(model, on=RTX, phase="prefill", batch=count, tokens=PROMPT, techniques=words).time_s.value
        for words in ((), ("rotated-fp4",))
    )
    return float(plain / narrow)


def figures() -> Iterator[Ours]:
    for chip in (B200, RTX):
        best = max(_sooner(chip, rows, "mxfp4") for rows in BATCHES[chip])
        yield f"{chip}, mxfp4 alone, the best batch", best
    for rows in BATCHES[B200]:
        yield f"B200, mxfp4 alone, {rows:,} rows", _sooner(B200, rows, "mxfp4")
    for rows in (512, 8192):
        yield f"B200, mxfp4 and rotation of 128, {rows:,} rows", _sooner(B200, rows, "mxfp4", rotated=True)
        yield f"B200, bf16, {rows:,} rows", _rate(B200, rows)
    yield "B200, nvfp4 alone, 8,192 rows", _sooner(B200, 8192, "nvfp4")
    yield "B200, nvfp4 and rotation of 16, 8,192 rows", _sooner(B200, 8192, "nvfp4", rotated=True)
    for rows in BATCHES[RTX]:
        yield f"RTX-5090, mxfp4 and rotation of 128, {rows:,} rows", _sooner(RTX, rows, "mxfp4", rotated=True)
    yield "RTX-5090, bf16, 2,048 rows", _rate(RTX, 2048)
    yield "RTX-5090, Qwen3-14B, the best batch of prompts", max(_prompts("qwen3-14b", count) for count in PROMPTS)
    yield "RTX-5090, Qwen3-14B, one prompt", _prompts("qwen3-14b", 1)
    yield "RTX-5090, Qwen3-14B, 8 prompts", _prompts("qwen3-14b", 8)
    yield "RTX-5090, Qwen3-8B, 64 prompts", _prompts("qwen3-8b", 64)
