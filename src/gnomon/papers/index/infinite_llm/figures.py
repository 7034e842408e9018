"""Infinite-LLM (Lin et al. 2024): how much longer a sequence is whose cache many instances hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import gnomon
from gnomon.load import model as load_model
from gnomon.papers.base import Ours
from gnomon.spec.answers import Fit

CHIP, CHIPS, ENGINE = "A100-SXM-80GB", 32, "vllm@0.2.0"
TRIED, CLAIMED, MILLION = 2_000_000, 1_900_000, 1_000_000
STEP = 2048
"""Tokens of a prompt at a time."""
INSTANCES = {"7B": ("llama-2-7b", 1), "70B": ("llama-2-70b", 8)}


@cache
def _fit(name: str, chips: int, context: int, *techniques: str) -> Fit:
    model = replace(load_model(name), max_context=2 * TRIED)
    return gnomon.fit(
        model, on=f"{CHIP}:{chips}", tp=chips, engine=ENGINE, context=context, techniques=techniques,
        settings={"max_num_batched_tokens": STEP},
    )  # fmt: skip


def figures() -> Iterator[Ours]:
    for label, (name, chips) in INSTANCES.items():
        held = _fit(name, chips, STEP).kv_tokens
        gpus = "one GPU" if chips == 1 else "eight GPUs"
        yield f"{label}: times longer than one instance of {gpus}", TRIED / held
    name, chips = INSTANCES["7B"]
    pooled = _fit(name, chips, CLAIMED, f"distributed-kv-cache:instances={CHIPS // chips}")
    yield "7B: the pool of 32 holds 1,900K tokens (1 for yes)", float(pooled.fits)
    fewest = next((n for n in (1, 2, 4, 8, 16) if _fit(name, n, MILLION).fits), CHIPS)
    yield "7B: fewest GPUs, tensor parallel, for 1M tokens", float(fewest)
