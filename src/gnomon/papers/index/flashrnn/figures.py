"""FlashRNN (Pöppel et al. 2024): an LSTM's loop in plain PyTorch, by cuDNN, and as one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

ON, BATCH, STEPS, TRACED, WIDTH, HEADS, GATES = "H100", 16, 1024, 64, 768, 12, 4
VALUE = 2.0
"""Bytes of a value."""
MILLI, MICRO = 1e-3, 1e-6


def _ms(name: str) -> float:
    return float(gnomon.predict(Path(__file__).with_name(f"{name}.trace.json.gz"), on=ON).time_s.value) / MILLI


def _fused_ms() -> float:
    """Gates of the input read, states and gates written, weights in registers: a chain of dependent steps."""
    moved = STEPS * BATCH * WIDTH * (2 * GATES + 2) * VALUE
    flops = 2.0 * STEPS * BATCH * WIDTH * GATES * WIDTH / HEADS
    row = {"op": "algebra", "dtype": "bf16", "flops": flops, "bytes": moved, "steps": STEPS}
    return float(gnomon.ops([row], on=ON)[0]["time_us"]) * MICRO / MILLI


def figures() -> Iterator[Ours]:
    plain, fused = _ms("loop") * STEPS / TRACED, _fused_ms()
    yield "12 heads of 64, forward: sooner by", plain / fused
    yield "12 heads of 64, forward, plain PyTorch", plain
    yield "12 heads of 64, forward, fused", fused
    yield "one head, forward, cuDNN", _ms("cudnn")
