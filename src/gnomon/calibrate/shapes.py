"""What to measure: shapes of real models under tensor parallelism, and others drawn between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Task = tuple[str, dict[str, Any]]

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1536, 2048, 3072, 4096,
        6144, 8192, 16384)  # fmt: skip
FP8_ROWS = (1, 8, 16, 32, 64, 128, 256, 384, 512, 768, 1024, 2048, 3072, 4096, 8192)

MODEL_MATRICES = (
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096),
    (5120, 2048), (2048, 4096), (128, 2048), (151936, 2048),
    (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672),
    (2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168), (3072, 2048), (16384, 2048), (2048, 8192),
)  # fmt: skip
"""Rows and columns (n, k) of the weights of Llama-3.1 8B and 70B whole and at TP 4, Qwen3-30B-A3B, Llama-3.2-1B."""


def drawn_matrices(count: int, seed: int = 7) -> list[tuple[int, int]]:
    """Other (n, k), log-uniform and multiples of 64, so that a fit cannot lean on the known ones."""
    draw = np.random.default_rng(seed)
    sides = np.exp(draw.uniform(np.log(512), np.log(32768), (count, 2)))
    return [(int(64 * round(n / 64)), int(64 * round(k / 64))) for n, k in sides]


def _gemm(matrices: list[tuple[int, int]]) -> Iterator[Task]:
    for n, k in matrices:
        for m in ROWS:
            if m * n <= 2**30:
                yield "gemm_bf16", {"m": m, "n": n, "k": k}


def _gemm_fp8(matrices: list[tuple[int, int]]) -> Iterator[Task]:
    for n, k in matrices:
        for m in FP8_ROWS:
            if m * n <= 2**30:
                yield "gemm_fp8", {"m": m, "n": n, "k": k}


HEADS = ((32, 8, 128), (64, 8, 128), (32, 4, 128), (8, 1, 128), (32, 8, 64))


def _attention() -> Iterator[Task]:
    for heads, kv_heads, head_dim in HEADS:
        shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        for batch in (1, 4, 16, 32, 64, 128, 256):
            for kv_len in (64, 256, 512, 1024, 2048, 4096, 16384):
                if batch * kv_len <= 1 << 20:
                    yield "attention", shape | {"batch": batch, "q_len": 1, "kv_len": kv_len}
        for batch, q_len in ((1, 16), (1, 64), (1, 128), (1, 256), (1, 512), (1, 1024), (1, 2048), (1, 4096), (1, 8192),
                             (4, 64), (4, 256), (4, 512), (4, 1024), (4, 2048), (16, 128), (16, 512)):  # fmt: skip
            yield "attention", shape | {"batch": batch, "q_len": q_len, "kv_len": q_len}
        for q_len, before in ((128, 1024), (512, 1024), (512, 4096), (2048, 4096), (2048, 16384), (8192, 8192)):
            yield "attention", shape | {"batch": 1, "q_len": q_len, "kv_len": q_len + before}


MOE_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
EXPERTS = (
    {"hidden": 2048, "inter": 768, "experts": 128, "topk": 8},
    {"hidden": 4096, "inter": 14336, "experts": 8, "topk": 2},
    {"hidden": 4096, "inter": 384, "experts": 128, "topk": 8},
)


def _moe() -> Iterator[Task]:
    for shape in EXPERTS:
        for tokens in MOE_TOKENS:
            yield "moe", shape | {"tokens": tokens}


def _elementwise() -> Iterator[Task]:
    for name in ("copy", "add_rms_norm", "silu_and_mul"):
        for width in (2048, 4096, 8192, 28672):
            for tokens in (1, 16, 64, 256, 1024, 4096, 8192):
                yield "elementwise", {"name": name, "tokens": tokens, "width": width}


def tasks(families: tuple[str, ...]) -> list[Task]:
    """Every measurement of the families, in a fixed order."""
    makers = {
        "elementwise": _elementwise,
        "attention": _attention,
        "gemm": lambda: _gemm(list(MODEL_MATRICES) + drawn_matrices(14)),
        "fp8": lambda: _gemm_fp8(list(MODEL_MATRICES[:4]) + list(MODEL_MATRICES[9:16]) + drawn_matrices(8, seed=11)),
        "moe": _moe,
    }
    return [task for family in families for task in makers[family]()]
