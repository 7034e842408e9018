"""GPUSQ-ViT (Yu et al. 2023): DeiT-B with 2:4 sparse integer weights on an A100, beside TF32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gnomon
from gnomon.papers.base import Ours

CARD = "A100-SXM-80GB"
LAYERS, WIDTH, INNER, HEADS, TOKENS = 12, 768, 3072, 12, 197
LARGE, SMALL = 256, 1
PLAIN_BITS, INPUT_BITS = 32, 8
"""Of a dense value, and of inputs that meet weights in eight bits or four."""
SPARSE_RATE = 2
KEPT = 0.625
"""Of a dense matrix of the same width, what a sparse one takes."""
WIDE, HALF = 4.0, 2.0


def _seconds(rows: Sequence[dict[str, Any]]) -> float:
    return sum(float(row["time_us"]) for row in gnomon.ops(rows, on=CARD)) * 1e-6


def _layer(images: int, dtype: str, width: float) -> list[dict[str, Any]]:
    """The GEMMs of a layer, one kernel of attention, and a norm with the sum before it for each half."""
    m, head = images * TOKENS, WIDTH // HEADS
    sizes = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (INNER, WIDTH), (WIDTH, INNER))
    gemms = [{"op": "gemm", "dtype": dtype, "m": m, "n": n, "k": k} for n, k in sizes]
    attention = {"batch": images, "heads": HEADS, "kv_heads": HEADS, "q_len": TOKENS, "kv_len": TOKENS}
    core = {"op": "attention_forward", "dtype": "bf16", "head_dim": head, "causal": 0} | attention
    norm = {"op": "elementwise", "dtype": "bf16"}
    moved = {"bytes_read": 2 * m * WIDTH * width, "bytes_written": 2 * m * WIDTH * width}
    return [*gemms, core, norm | moved, norm | moved]


def _gain(images: int) -> float:
    return _seconds(_layer(images, "tf32", WIDE)) / _seconds(_layer(images, "int8-sparse", HALF))


def figures() -> Iterator[Ours]:
    for bits, word in ((8, "INT8"), (4, "INT4")):
        yield f"size, {word}", PLAIN_BITS / (bits * KEPT)
        yield f"FLOPs in {word}, counted by both widths", SPARSE_RATE * (PLAIN_BITS / bits) * (PLAIN_BITS / INPUT_BITS)
    yield "A100, throughput", _gain(LARGE)
    yield "A100, latency", _gain(SMALL)
