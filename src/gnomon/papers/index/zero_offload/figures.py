"""ZeRO-Offload (Ren et al. 2021): the largest network of one V100 and of a DGX-2, and the throughput of
ten billion parameters on one chip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.shapes import network, plain_layers
from gnomon.spec.answers import TrainingReport

BILLION, TERA = 1e9, 1e12
VOCAB, SEQ = 50_304, 1024
CHIP, BOX = "V100-SXM3-32GB", 16
OFFLOAD = ("offload-optimizer",)


def _step(layers: int, hidden: int, heads: int, batch: int, **words: Any) -> TrainingReport:
    """GPT-2 of that size under Megatron-LM of its time, activations recomputed."""
    blocks = plain_layers(layers, hidden, heads, 4 * hidden)
    fields = {"hidden": hidden, "vocab": VOCAB, "max_context": SEQ, "learned_positions": SEQ, "norm_bias": True}
    tp = words.get("tp", 1)
    return gnomon.simulate_training(
        network("gpt2", **fields, tied_embeddings=True, blocks=blocks), on=f"{CHIP}:{tp}", seq=SEQ, global_batch=batch,
        micro_batch=batch, recompute="full", dtype="fp16", engine="megatron@2.4", sequence_parallel=False, **words,
    )  # fmt: skip


def _largest(hidden: int, heads: int, most: int, **words: Any) -> float:
    """Billions of parameters of the longest network of that width that fits, one sequence at a time."""
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _step(middle, hidden, heads, 1, **words).fits else (low, middle)
    return float(_step(low, hidden, heads, 1, **words).step.job.model.parameters / BILLION)


def _sizes() -> Iterator[Ours]:
    away, here = _largest(4096, 32, 128, techniques=OFFLOAD), _largest(2048, 16, 64)
    yield "largest network, one V100", away
    yield "largest network, one V100, states on the chip", here
    yield "times larger on one V100", away / here
    away, here = (_largest(8192, 64, 512, tp=BOX, techniques=given) for given in (OFFLOAD, ()))
    yield "largest network, DGX-2 with tensor parallelism", away
    yield "times larger on a DGX-2", away / here


def _rate(step: TrainingReport) -> float:
    """TFLOP/s, without recomputation."""
    return float(step.step.flops["model"] / step.step_time_s.value / TERA)


def figures() -> Iterator[Ours]:
    yield from _sizes()
    yield "10 billion on one V100", _rate(_step(50, 4096, 32, 10, techniques=OFFLOAD))
    yield "1.4 billion on one V100, states on the chip", _rate(_step(24, 2048, 16, 8))
