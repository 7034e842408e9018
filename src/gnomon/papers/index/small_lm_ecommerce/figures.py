"""Small language models for shops (Licardo and Tankovic 2025): four bits on a T4 take less memory and more time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import gnomon
from gnomon.papers.base import Ours

MODEL, CARD, TOKENS = "llama-3.2-1b", "T4", 256
NARROW = ("dequantize-on-the-fly",)
PLAIN = {"max_num_seqs": 1, "enforce_eager": True, "max_num_batched_tokens": TOKENS}


def _token_s(techniques: Sequence[str]) -> float:
    step = gnomon.predict(
        MODEL, on=CARD, phase="decode", context=TOKENS, techniques=techniques, settings={"enforce_eager": True}
    )
    return float(step.time_s.value)


def _memory(techniques: Sequence[str]) -> float:
    """All but the room that is left for other sequences."""
    fit = gnomon.fit(MODEL, on=CARD, context=TOKENS, settings=PLAIN, techniques=techniques)
    cache = gnomon.predict(
        MODEL, on=CARD, phase="decode", context=TOKENS - 1, techniques=techniques, settings=PLAIN
    ).memory_parts["kv"]
    return sum(size for part, size in fit.parts.items() if part != "kv") + cache


def figures() -> Iterator[Ours]:
    yield "GPU memory", 100 * (1 - _memory(NARROW) / _memory(()))
    yield "time of a token, four bits over fp16", _token_s(NARROW) / _token_s(())
