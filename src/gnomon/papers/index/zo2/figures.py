"""ZO2 (Wang et al. 2025): GPU memory of zeroth-order training of OPT, with layers on the host and on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.shapes import network, plain_layers
from gnomon.spec import Model

SEQ, VOCAB, CHIP = 2048, 50_272, "A100-SXM-80GB"
GIB = 1024.0**3
SIZES = {
    "175B": (96, 12288, 96), "66B": (64, 9216, 72), "30B": (48, 7168, 56), "13B": (40, 5120, 40),
    "6.7B": (32, 4096, 32), "2.7B": (32, 2560, 32), "1.3B": (24, 2048, 32),
}  # fmt: skip
"""Layers, channels and heads."""
RESIDENT = ("6.7B", "13B", "30B")


@cache
def _model(name: str) -> Model:
    layers, hidden, heads = SIZES[name]
    fields = {"hidden": hidden, "vocab": VOCAB, "max_context": SEQ, "learned_positions": SEQ + 2, "norm_bias": True}
    return network(
        f"opt-{name}", **fields, tied_embeddings=False, blocks=plain_layers(layers, hidden, heads, 4 * hidden)
    )


def _used_gib(name: str, technique: str) -> float:
    """What a driver would report: all that a step holds, and what the process takes beside it."""
    found = gnomon.simulate_training(
        _model(name), on=CHIP, seq=SEQ, global_batch=1, optimizer="adamw-bf16", engine="megatron", dtype="bf16",
        techniques=[technique],
    )  # fmt: skip
    return float((found.peak_memory_bytes.value + found.step.traits.runtime_bytes) / GIB)


def figures() -> Iterator[Ours]:
    for name in SIZES:
        yield f"OPT-{name}", _used_gib(name, "zeroth-order:layers=host")
    for name in RESIDENT:
        yield f"OPT-{name}, weights on the GPU", _used_gib(name, "zeroth-order")
