"""Benchmarking Hopper (Luo et al. 2024): the bandwidths and rates of three cards that kernel models rest on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

CARDS = {"H800 PCIe": "H800-PCIe-80GB", "A100 PCIe": "A100-PCIe-40GB", "RTX 4090": "RTX-4090"}
COPIED, SIDE = 4e9, 8192
MICRO, GIGA, TERA = 1e-6, 1e9, 1e12


def _seconds(card: str, **row: object) -> float:
    return float(gnomon.ops([row], on=CARDS[card])[0]["time_us"]) * MICRO


def _copied_s(card: str) -> float:
    """PyTorch's copy of one tensor, without the host."""
    trace = Path(__file__).with_name("copy.trace.json.gz")
    return float(gnomon.predict(trace, on=CARDS[card], settings={"launch": "graph"}).time_s.value)


def _rate(card: str, dtype: str) -> float:
    return 2.0 * SIDE**3 / _seconds(card, op="gemm", dtype=dtype, m=SIDE, n=SIDE, k=SIDE) / TERA


def figures() -> Iterator[Ours]:
    for card in CARDS:
        yield f"{card}, bandwidth", 2 * COPIED / _copied_s(card) / GIGA
    yield "H800 PCIe, fp8 GEMM", _rate("H800 PCIe", "fp8")
    yield "H800 PCIe, 16-bit GEMM", _rate("H800 PCIe", "fp16")
    yield "A100 PCIe, 16-bit GEMM", _rate("A100 PCIe", "fp16")
