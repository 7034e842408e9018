"""Long contexts at theoretical peak (Fu 2024): a model of 34 billion at 4K and 50K tokens on one A100."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import gnomon
from gnomon.load import chip
from gnomon.load import model as load_model
from gnomon.papers.base import Ours
from gnomon.spec import Chip, Model

CHIP = "A100-SXM-80GB"
GIGA = 1e9
CONTEXTS = {"4K": 4096, "50K": 50_000}
ANSWER = 250
LINK_BYTES_S = 20e9
HALF = 0.5
"""Of the FLOPs of causal attention, what the printed seconds leave for it."""


@cache
def _model() -> Model:
    """Yi-34B-200K has the shapes of Yi-34B and a longer context."""
    return replace(load_model("yi-34b"), max_context=200_000)


def _chip() -> Chip:
    return chip(CHIP)


def _prefill_flops(tokens: int) -> tuple[float, float]:
    """Of matrices, and of causal attention."""
    lines = gnomon.predict(_model(), on=CHIP, phase="prefill", batch=1, tokens=tokens).breakdown
    attention = sum(line.flops for line in lines if line.kind.startswith("attention"))
    return sum(line.flops for line in lines) - attention, attention


def _cache_bytes(tokens: int) -> float:
    """Of one sequence."""
    found: float = gnomon.predict(_model(), on=CHIP, phase="decode", batch=1, context=tokens - 1).memory_parts["kv"]
    return found


def _weight_bytes() -> float:
    found: float = gnomon.fit(_model(), on=CHIP, context=CONTEXTS["4K"]).parts["weights"]
    return found


def figures() -> Iterator[Ours]:
    """By data sheet alone."""
    card, weights = _chip(), _weight_bytes()
    for name, tokens in CONTEXTS.items():
        matrices, attention = _prefill_flops(tokens)
        yield f"prefill of {name}, half of causal attention", (matrices + HALF * attention) / card.rate("bf16")
        seconds = ANSWER * (weights + _cache_bytes(tokens)) / card.memory_bandwidth_bytes_s
        yield f"{ANSWER} tokens after {name}", seconds
        yield f"users of {name} beside the weights", (card.memory_bytes - weights) // _cache_bytes(tokens)
    held = _cache_bytes(CONTEXTS["50K"])
    yield "cache of 50K", held / GIGA
    yield "swap of 50K, out and in", 2 * held / LINK_BYTES_S
    yield "prefill of 50K, all of causal attention", sum(_prefill_flops(CONTEXTS["50K"])) / card.rate("bf16")
