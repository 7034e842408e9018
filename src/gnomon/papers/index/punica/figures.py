"""Punica (Chen et al. 2023): many LoRA adapters of one base model in one step, against a step for each adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import sqrt
from typing import Any

import gnomon
from gnomon.papers.base import Ours

ENGINE, BATCH, RANK = "vllm@0.2.0", 32, 16
CONTEXT, PROMPT, TOTAL = 512, 22, 2048
ANSWER = TOTAL / 2 - PROMPT
"""Tokens of the mean answer: totals are uniform from nothing."""
REQUESTS, RATIO = 1000, 1.5
MODELS = {
    "7B": ("llama-2-7b", "A100-SXM-80GB:1"),
    "13B": ("llama-2-13b", "A100-SXM-80GB:1"),
    "70B": ("llama-2-70b", "A100-SXM-40GB:8"),
}
TABLE = {
    "7B": ("distinct", "uniform", "skewed", "identical"),
    "13B": ("distinct", "identical"),
    "70B": ("distinct", "identical"),
}
RUNS = 200
"""Longest run of requests of one adapter that is summed over."""
MILLI = 1e-3


def _adapters(popularity: str) -> float:
    """Different adapters of a step of 32, over its sequences."""
    if popularity == "identical":
        return 1 / BATCH
    return 1.0 if popularity == "distinct" else min(_named(popularity), BATCH) / BATCH


def _named(popularity: str) -> float:
    """Different adapters that a step of 32 sequences names on average."""
    if popularity == "uniform":
        count = round(sqrt(REQUESTS))
        return count * (1 - (1 - 1 / count) ** BATCH)
    shares = [(1 - 1 / RATIO) / RATIO**i for i in range(RUNS)]
    return sum(1 - (1 - share) ** BATCH for share in shares)


def _again(popularity: str) -> float:
    """How often a request has the adapter of the one before it."""
    same = {"distinct": 0.0, "identical": 1.0, "uniform": 1 / round(sqrt(REQUESTS))}
    ratio = 1 / RATIO
    return same.get(popularity, (1 - ratio) / (1 + ratio))


@cache
def _step_s(model: str, batch: int, techniques: Sequence[str] = (), phase: str = "decode") -> float:
    name, on = MODELS[model]
    tp = int(on.partition(":")[2])
    size: dict[str, Any] = {"batch": batch, "context": CONTEXT} if phase == "decode" else {"batch": 1, "tokens": PROMPT}
    found = gnomon.predict(name, on=on, tp=tp, dtype="fp16", engine=ENGINE, phase=phase, techniques=techniques, **size)
    return found.time_s.value


def _shared(model: str, techniques: Sequence[str]) -> float:
    """Tokens per second of steps that are always full: a prompt comes in for each answer that ends."""
    prompts = BATCH * _step_s(model, 1, techniques, "prefill")
    return BATCH * ANSWER / (ANSWER * _step_s(model, BATCH, techniques) + prompts)


def _apart(model: str, popularity: str) -> float:
    """Tokens per second where a run of requests of one adapter is answered before the next begins."""
    again = _again(popularity)
    if again == 1:
        return _shared(model, ())
    tokens = seconds = 0.0
    for size in range(1, BATCH + 1):
        share = (1 - again) * again ** (size - 1)
        if share < 1e-6:
            break
        decodes = _run_s(model, size)
        tokens += share * size * ANSWER
        seconds += share * (decodes + size * _step_s(model, 1, (), "prefill"))
    return tokens / seconds


def _run_s(model: str, size: int) -> float:
    """Decode steps of a run whose answers end one by one: with k left, until the next of uniform ends ends."""
    return sum(2 * ANSWER / (size + 1) * _step_s(model, left) for left in range(1, size + 1))


def figures() -> Iterator[Ours]:
    found: dict[tuple[str, str, str], float] = {}
    for model, rows in TABLE.items():
        for popularity in rows:
            share = _adapters(popularity)
            technique = f"grouped-adapters:rank={RANK},share={share:.4f}"
            found[model, popularity, "vLLM"] = _apart(model, popularity)
            found[model, popularity, "Punica"] = _shared(model, (technique,))
    for (model, popularity, system), rate in found.items():
        yield f"{model}, {popularity}: {system}", rate
    yield "7B, distinct: Punica over vLLM", found["7B", "distinct", "Punica"] / found["7B", "distinct", "vLLM"]
    distinct = (f"grouped-adapters:rank={RANK},share=1.0000",)
    yield "7B: added by adapters to a step of 32", (_step_s("7B", BATCH, distinct) - _step_s("7B", BATCH)) / MILLI
