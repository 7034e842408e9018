"""FastSwitch (Shen et al. 2024): sessions swapped in groups of blocks beside the steps, against block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gnomon
from gnomon.papers.base import Ours

ENGINE, SESSION, BLOCK, GROUP = "vllm@0.5.4", 1000, 16, 64
"""Tokens of a session and of a block, and blocks of a group."""
SETUPS = {"llama-3.1-8b": ("A10", 25), "qwen2.5-32b": ("A100-SXM-80GB", 50)}
"""Chip, and iterations from one change of priorities to the next."""
SETTINGS = {"max_model_len": 8192}


def _tokens_per_s(model: str, chip: str, technique: str) -> float:
    ours: dict[str, Any] = {"on": chip, "engine": ENGINE, "settings": SETTINGS}
    batch = max(1, gnomon.fit(model, **ours).kv_tokens // SESSION)
    return gnomon.predict(
        model, phase="decode", batch=batch, context=SESSION, techniques=(technique,), **ours
    ).tokens_per_s


def figures() -> Iterator[Ours]:
    gains = []
    for model, (chip, every) in SETUPS.items():
        blocks = _tokens_per_s(model, chip, f"kv-swap:turn={every},group={BLOCK}")
        groups = _tokens_per_s(model, chip, f"kv-swap:turn={every},group={BLOCK * GROUP},copies=overlapped")
        gains.append(groups / blocks)
    yield "throughput against vLLM, the best case", max(gains)
