"""Fused MLPs on Intel GPUs (Yuan et al. 2024): narrow layers kept on the chip, and one GEMM after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

NVIDIA, INTEL = "H100-PCIe-80GB", "Max-1550"
ROWS, WIDTH, GEMMS, BATCHES = 2**17, 64, 12, 1000
VALUE, MICRO = 2.0, 1e-6


def _pytorch_s(name: str) -> float:
    found = gnomon.predict(Path(__file__).with_name(f"{name}.trace.json.gz"), on=NVIDIA)
    return BATCHES * float(found.time_s.value)


def _fused_s(on: str) -> float:
    """Samples in and results out once; arithmetic as of as many GEMMs of this width whose operands never leave the
    chip, which are the layers side by side: one GEMM as deep as the network."""
    rows = [
        {"op": "gemm", "dtype": "bf16", "m": ROWS, "n": WIDTH, "k": GEMMS * WIDTH},
        {
            "op": "elementwise",
            "dtype": "bf16",
            "bytes_read": ROWS * WIDTH * VALUE,
            "bytes_written": ROWS * WIDTH * VALUE,
        },
    ]
    return BATCHES * max(float(row["time_us"]) for row in gnomon.ops(rows, on=on)) * MICRO


def figures() -> Iterator[Ours]:
    plain, nvidia, intel = _pytorch_s("infer"), _fused_s(NVIDIA), _fused_s(INTEL)
    yield "inference, CUDA on H100 over SYCL on Max 1550", nvidia / intel
    yield "inference, PyTorch on H100", plain
    yield "training, PyTorch on H100", _pytorch_s("train")
    yield "inference, fused CUDA on H100", nvidia
    yield "inference, fused SYCL on Max 1550", intel
    yield "inference, PyTorch over fused CUDA on H100", plain / nvidia
