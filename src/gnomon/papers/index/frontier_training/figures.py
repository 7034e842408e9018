"""Distributed training on Frontier (Dash et al. 2023): GPT of 22B, 175B and 1T parameters on MI250X."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gnomon
from gnomon.accuracy.published import counted_flops
from gnomon.errors import InputError
from gnomon.papers.base import Ours
from gnomon.papers.shapes import network, plain_layers
from gnomon.spec.answers import TrainingReport

SEQ, VOCAB, PEAK = 2048, 51200, 191.5e12
SHAPES = {"22B": (48, 6144, 48), "175B": (96, 12288, 96), "1T": (128, 25600, 128)}
"""Layers, channels, heads."""
DEGREES = {"175B": (4, 16), "1T": (8, 64)}
"""Tensor and pipeline parallel ranks."""
REPLICA = {"22B": 128, "175B": 640, "1T": 1600}
"""Sequences per replica."""
CHIPS = {"175B": 1024, "1T": 3072}
STRONG = {"175B": (256, 8000), "1T": (1024, 8004)}
"""The fewest GPUs, and a step's sequences: 8,000, or as many as six replicas can share."""


@cache
def _step(name: str, chips: int, tensor: int, stages: int, batch: int) -> TrainingReport:
    layers, hidden, heads = SHAPES[name]
    fields: dict[str, Any] = {"hidden": hidden, "vocab": VOCAB, "max_context": SEQ, "learned_positions": SEQ}
    model = network(f"gpt-{name}", norm_bias=True, blocks=plain_layers(layers, hidden, heads, 4 * hidden), **fields)
    words: dict[str, Any] = {"seq": SEQ, "dtype": "fp16", "recompute": "full", "zero": 1, "sequence_parallel": False}
    words |= {"tp": tensor, "pp": stages, "global_batch": batch, "engine": "deepspeed@0.9"}
    return gnomon.simulate_training(model, on=f"MI250X-GCD:{chips}", **words)


def _share(found: TrainingReport) -> float:
    """Percent of a die's peak, with the recomputed pass."""
    job, seconds = found.step.job, found.step_time_s.value * found.plan.strategy.ranks
    return float(100 * counted_flops(job.model, job.load) / (seconds * PEAK))


def _of(name: str, chips: int, batch: int = 0) -> float:
    tensor, stages = DEGREES[name]
    return _share(_step(name, chips, tensor, stages, batch or REPLICA[name] * chips // (tensor * stages)))


def _searched(name: str, chips: int) -> float:
    """Of the fastest degrees that fit."""
    found = []
    for tensor in (2, 4, 8):
        for stages in (1, 2, 4, 8):
            try:
                answer = _step(name, chips, tensor, stages, REPLICA[name] * chips // (tensor * stages))
            except InputError:  # heads or layers cannot be divided so
                continue
            found.append((answer.fits, _share(answer)))
    return max(found)[1]


def figures() -> Iterator[Ours]:
    shares = {"22B": _searched("22B", 64)} | {name: _of(name, chips) for name, chips in CHIPS.items()}
    for name, share in shares.items():
        yield f"{name}: share of a die's peak", share
    yield "1T over 22B, shares of peak", shares["1T"] / shares["22B"]
    for name, chips in CHIPS.items():
        tensor, stages = DEGREES[name]
        yield f"{name}: weak scaling to {chips:,}", 100 * shares[name] / _of(name, tensor * stages)
        fewest, batch = STRONG[name]
        yield f"{name}: strong scaling to {chips:,}", 100 * _of(name, chips, batch) / _of(name, fewest, batch)
    yield "training 1T on 20 trillion tokens", 6 * 1e12 * 20e12
    yield "model states of 1T, 24 bytes per parameter", 24 * 1e12 / 1e12
