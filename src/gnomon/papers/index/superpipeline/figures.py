"""Superpipeline (Abbasi and Lim 2024): what a model takes of the GPU with two fifths of its layers there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gnomon
from gnomon.papers.base import Ours

MODEL, CARD, TOKENS, LAYERS = "llama-2-7b", "H100", 2048, 32
ON_GPU, BUFFERS = round(0.4 * LAYERS), 2
"""Layers on the GPU, and of them those that copies run through."""
ONE: dict[str, Any] = {"max_num_seqs": 1, "max_num_batched_tokens": TOKENS}


def _bytes(*techniques: str) -> float:
    """All but the room that is left for other sequences."""
    given: dict[str, Any] = {"on": CARD, "settings": ONE, "techniques": techniques}
    fit = gnomon.fit(MODEL, context=TOKENS, **given)
    step = gnomon.predict(MODEL, phase="decode", context=TOKENS - 1, **given)
    return float(sum(size for part, size in fit.parts.items() if part != "kv") + step.memory_parts["kv"])


def figures() -> Iterator[Ours]:
    share = (ON_GPU - BUFFERS) / LAYERS
    yield "GPU memory saved", 100 * (1 - _bytes(f"streamed-layers:resident={share}") / _bytes())
