"""Tutel (Hwang et al. 2022): one MoE layer with sparse dispatch and chunks, beside einsum over one-hot masks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.shapes import network
from gnomon.spec import Model
from gnomon.spec.answers import TrainingReport

CARD, EACH, TOPK = "A100-SXM-80GB", 2, 2
"""Experts of a GPU, and those that a token visits."""
TOKENS, WIDTH = 16384, 2048
WIDE = 4096
ROWS = (4096, 8192, 16384, 32768)
EINSUM, CHUNKS = ("einsum-dispatch",), ("expert-overlap",)
FULL: dict[str, Any] = {"recompute": "none", "capacity_factor": 1.0, "pad_to_capacity": True}
LEAST = 16
"""Channels of the one head and words of the vocabulary: what stands around the layer takes next to nothing."""
GIB = 1024.0**3


@cache
def _layer(gpus: int, width: int) -> Model:
    mixer = {"kind": "attention", "heads": 1, "kv_heads": 1, "head_dim": LEAST}
    ffn = {"kind": "moe", "experts": EACH * gpus, "topk": TOPK, "inner": width, "gated": False}
    blocks = [{"count": 1, "mixer": mixer, "ffn": ffn}]
    return network("moe-layer", hidden=width, vocab=LEAST, max_context=ROWS[-1], dtype="bf16", blocks=blocks)


@cache
def _step(gpus: int, techniques: tuple[str, ...], tokens: int = TOKENS, width: int = WIDTH) -> TrainingReport:
    return gnomon.simulate_training(
        _layer(gpus, width), on=f"{CARD}:{gpus}", seq=tokens, global_batch=gpus, micro_batch=1, ep=gpus,
        techniques=techniques, **FULL,
    )  # fmt: skip


def _sooner(gpus: int, before: tuple[str, ...], after: tuple[str, ...]) -> float:
    """Of a forward and a backward pass."""
    return _step(gpus, before).step_parts["pipeline_s"] / _step(gpus, after).step_parts["pipeline_s"]


def figures() -> Iterator[Ours]:
    for gpus in (16, 128, 2048):
        yield f"{gpus:,} GPUs, all of it", _sooner(gpus, EINSUM, CHUNKS)
    for gpus in (16, 2048):
        yield f"{gpus:,} GPUs, sparse dispatch", _sooner(gpus, EINSUM, ())
    yield "16 GPUs, overlap beside it", _sooner(16, (), CHUNKS)
    for tokens in ROWS:
        peaks = [_step(1, words, tokens, WIDE).peak_memory_bytes.value for words in (EINSUM, ())]
        yield f"memory by einsum over sparse, {tokens:,} tokens", (peaks[0] - peaks[1]) / GIB
