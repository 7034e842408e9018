"""FLOPs and bytes of operators by their sizes, as `gnomon.graph.ops` counts them by their batch."""

from __future__ import annotations

from typing import cast

import numpy as np

from gnomon.graph.dtypes import gemm_format, width
from gnomon.graph.mixer_ops import Mixing, index_bytes, latent_bytes, latent_flops, scan_bytes, scan_flops
from gnomon.graph.ops import Shape
from gnomon.graph.uneven import visited_by
from gnomon.spec.workload import Floats

ARITHMETIC = (
    "gemm",
    "gemm_unaligned",
    "conv",
    "conv_few",
    "conv_depthwise",
    "moe",
    "attention_prefill",
    "attention_forward",
    "attention_backward",
)
"""Kinds whose throughput follows the clock; the others stream memory or cross links."""


def work(kind: str, dtype: str, shape: Shape) -> tuple[Floats, Floats]:
    """FLOPs, and bytes read and written. Attention's `dtype` is that of its cache."""
    if kind.startswith("gemm"):
        m, n, k, batch = shape["m"], shape["n"], shape["k"], shape.get("batch", np.ones(1))
        sides = gemm_format(dtype)
        return 2.0 * batch * m * n * k, batch * (m * k * sides.inputs + n * k * sides.weights + m * n * 2.0)
    if kind.startswith("conv"):
        return 2.0 * shape["m"] * shape["n"] * shape["k"] * shape["batch"], shape["bytes"]
    if kind == "moe":
        return _experts(dtype, shape)
    if kind.startswith("attention"):
        return _attention(kind, dtype, shape)
    if kind.startswith("scan"):
        _, phase, mixer = kind.split("_", 2)
        return scan_flops(phase, cast(Mixing, mixer), shape), scan_bytes(phase, cast(Mixing, mixer), shape)
    if kind.startswith("mla"):
        return latent_flops(kind, shape), latent_bytes(kind, dtype, shape)
    if kind == "index_scores":
        return 2.0 * shape["pairs"] * shape["heads"] * shape["head_dim"], index_bytes(shape, dtype)
    if kind == "algebra":
        return shape["flops"], shape["bytes"]
    moved = shape["bytes_read"] + shape["bytes_written"] if kind == "elementwise" else shape["bytes"]
    return np.zeros_like(moved), moved


def _experts(dtype: str, shape: Shape) -> tuple[Floats, Floats]:
    hidden, inner, visited = shape["hidden"], shape["inter"], visited_by(shape)
    matrices = shape.get("matrices", 3.0)
    weights = visited * matrices * hidden * inner * gemm_format(dtype).weights
    rows = shape["tokens"] * shape["topk"]
    return 2.0 * matrices * rows * hidden * inner, weights + rows * (2.0 * hidden + matrices * inner) * 2.0


def _attention(kind: str, dtype: str, shape: Shape) -> tuple[Floats, Floats]:
    heads, kv_heads, head_dim = (shape[name] for name in ("heads", "kv_heads", "head_dim"))
    decode, backward = kind == "attention_decode", kind == "attention_backward"
    pairs = shape["context"] if decode else shape["pairs"]
    tokens = shape["sequences"] if decode else shape["tokens"]
    passes = 2.0 if backward else 1.0
    moved = 2.0 * passes * head_dim * (shape["context"] * kv_heads * width(dtype) + tokens * heads * 2.0)
    return (10.0 if backward else 4.0) * pairs * heads * head_dim, moved
