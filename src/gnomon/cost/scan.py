"""Scans: prompts in chunks, on tensor cores but for the first Mamba; decodes stream their states.

A sequence's chunks follow each other, so few sequences of few heads wait for that chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gnomon.graph.mixer_ops import Mixing, chunks_of, scan_bytes, scan_flops
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

Seconds = Callable[[Shape, str, Chip, Mapping[str, float]], Floats]

DECODE = {
    "memory": (0.75, 0.2, 1.0),
    "launch_us": (4.0, 0.5, 30.0),
}
"""Where a fit starts, and the range in which each coefficient means what it says: those of the H200's elementwise
operators, for kernels that read and write in one go but gather."""

_PREFILL = {
    "rate": (0.3, 0.02, 1.0),
    "memory": (0.7, 0.2, 1.0),
    "launch_us": (20.0, 1.0, 200.0),
    "chunk_us": (1.0, 0.0, 30.0),
    "overlap": (2.0, 1.0, 8.0),
}
PREFILL: Mapping[Mixing, Mapping[str, tuple[float, float, float]]] = {
    "mamba2": _PREFILL,
    "gated_delta": _PREFILL,
    "lightning": _PREFILL,
    "mamba": _PREFILL | {"rate": (0.15, 0.01, 1.0), "launch_us": (6.0, 1.0, 60.0), "chunk_us": (8.0, 0.0, 100.0)},
}
"""Ranges of the coefficients of prompts: a few kernels of small matmuls, at the share of the tensor cores that Triton's
reach at tiles of 64; of the first Mamba, the vector units' share beside their exponentials."""


_BACKWARD = _PREFILL | {"launch_us": (60.0, 1.0, 400.0)}
BACKWARD: Mapping[Mixing, Mapping[str, tuple[float, float, float]]] = {
    "mamba2": _BACKWARD,
    "gated_delta": _BACKWARD,
    "lightning": _BACKWARD,
    "mamba": {**PREFILL["mamba"], "launch_us": (12.0, 1.0, 120.0)},
}
"""As of prompts, in three times the kernels, of the first Mamba in twice as many (mamba_ssm 2.2 and
flash-linear-attention 0.4, counted); nothing is measured."""


def prefill(mixer: Mixing, phase: str = "prefill") -> Seconds:
    """Of prompts, and in training forward and backward."""

    def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
        rate = chip.vector_rate if mixer == "mamba" else chip.half_rate("bf16")
        multiplied = scan_flops(phase, mixer, shape) / (rate * c["rate"])
        streamed = scan_bytes(phase, mixer, shape) / (chip.memory_bandwidth_bytes_s * c["memory"])
        # A head of a sequence has a multiprocessor to itself while there are enough of them.
        rounds = np.maximum(shape["sequences"] * shape["heads"] * shape["head_dim"] / 64 / chip.sm_count, 1.0)
        chained = chunks_of(shape)[0] * rounds * c["chunk_us"] * 1e-6
        p = c["overlap"]
        body = (multiplied**p + streamed**p + chained**p) ** (1 / p)
        return np.where(shape["tokens"] > 0, body + c["launch_us"] * 1e-6, 0.0)

    return seconds


def decode(mixer: Mixing) -> Seconds:
    def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
        streamed = scan_bytes("decode", mixer, shape) / (chip.memory_bandwidth_bytes_s * c["memory"])
        multiplied = scan_flops("decode", mixer, shape) / chip.vector_rate
        return np.where(shape["tokens"] > 0, np.maximum(streamed, multiplied) + c["launch_us"] * 1e-6, 0.0)

    return seconds
