"""HipKittens (Hu et al. 2025): TFLOP/s of three libraries' kernels at sizes that no fit has seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from gnomon.calibrate.least_squares import fit
from gnomon.cost.kernels import kernel_model
from gnomon.cost.rows import shape_of
from gnomon.load import chip
from gnomon.papers.base import Ours
from gnomon.spec.workload import Floats

SEEN, ASIDE, TERA = (1024, 4096, 16384), (2048, 8192), 1e12
BATCH, HEADS, KV_HEADS, CHANNELS = 16, 64, 8, 64
Rates = tuple[float, float, float]
"""TFLOP/s at the sizes that are seen."""
GEMMS: Mapping[tuple[str, str], Mapping[str, Rates]] = {
    ("MI355X", "bf16"): {
        "PyTorch": (56.9, 1138.5, 1559.8),
        "AITER": (53.1, 1113.6, 1564.1),
        "HipKittens": (139.5, 1412.9, 1571.5),
    },
    ("MI355X", "fp8"): {"hipBLASLt": (204.9, 2748.8, 3293.2), "HipKittens": (270.1, 2741.4, 3377.8)},
    ("MI325X", "bf16"): {"PyTorch": (79.1, 752.5, 749.8), "HipKittens": (60.2, 713.7, 714.3)},
}
ATTENTION: Mapping[str, Rates] = {"AITER": (678.7, 782.2, 806.3), "HipKittens": (769.7, 934.1, 979.1)}


def _gemm(sizes: Sequence[int]) -> dict[str, Floats]:
    square = np.array(sizes, float)
    return {"m": square, "n": square, "k": square}


def _attention(sizes: Sequence[int]) -> dict[str, Floats]:
    tokens = np.array(sizes, float)
    fixed = {"batch": BATCH, "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": CHANNELS, "causal": 0}
    return {"q_len": tokens, "kv_len": tokens} | {name: np.full(tokens.size, float(of)) for name, of in fixed.items()}


def _gemm_flops(size: int) -> float:
    return 2.0 * size**3


def _attention_flops(size: int) -> float:
    return 4.0 * BATCH * HEADS * CHANNELS * size**2


@cache
def _unseen(kind: str, name: str, dtype: str, rates: Rates) -> tuple[float, ...]:
    """TFLOP/s at the sizes set aside, by the kernel model fitted to the others."""
    columns, flops = _KINDS[kind]
    model, on = kernel_model(kind), chip(name)
    seconds = np.array([flops(size) / (rate * TERA) for size, rate in zip(SEEN, rates, strict=True)])
    seen, aside = (shape_of(kind, columns(sizes)) for sizes in (SEEN, ASIDE))
    found = fit(lambda given: np.log(model.seconds(seen, dtype, on, given) / seconds), model.ranges)
    ours = model.seconds(aside, dtype, on, found)
    return tuple(flops(size) / (float(each) * TERA) for size, each in zip(ASIDE, ours, strict=True))


_KINDS: Mapping[str, tuple[Callable[[Sequence[int]], dict[str, Floats]], Callable[[int], float]]] = {
    "gemm": (_gemm, _gemm_flops),
    "attention_forward": (_attention, _attention_flops),
}


def figures() -> Iterator[Ours]:
    for (name, dtype), libraries in GEMMS.items():
        for library, rates in libraries.items():
            for size, ours in zip(ASIDE, _unseen("gemm", name, dtype, rates), strict=True):
                yield f"{name}, GEMM in {dtype} of {size:,}: {library}", ours
    attention = {name: _unseen("attention_forward", "MI355X", "bf16", rates) for name, rates in ATTENTION.items()}
    for library, found in attention.items():
        for size, ours in zip(ASIDE, found, strict=True):
            yield f"MI355X, attention of {size:,} tokens: {library}", ours
    yield "MI355X, attention of 8,192 tokens: HipKittens over AITER", attention["HipKittens"][1] / attention["AITER"][1]
