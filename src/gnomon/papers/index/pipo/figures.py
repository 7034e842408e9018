"""PIPO (Liu et al. 2025): layers streamed to a laptop's GPU when they are due, and ahead of their use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster, host
from gnomon.spec import Pool

MODEL, BUSY = "llama-3.1-8b", 0.4
"""The share of the time that the baseline's GPU works."""
SHORTEST, LONGEST, STEPS = 16, 16384, 14


@cache
def _machine() -> Pool:
    """Eight cores, two channels of DDR4-3200, and eight lanes of PCIe 4.0."""
    return cluster(
        "RTX-3060-12GB", 1, 1, host(cores=8, memory_gib=16, memory_gb_s=51.2, adam_gparam_s=1.0, link_gb_s=15.75)
    )


@cache
def _prompt_s(tokens: int, *techniques: str) -> float:
    settings: dict[str, Any] = {"enforce_eager": True, "max_num_batched_tokens": LONGEST}
    found = gnomon.predict(
        MODEL, on=_machine(), phase="prefill", tokens=tokens, settings=settings, techniques=techniques
    )
    return float(found.time_s.value)


def _when_due_s(tokens: int) -> float:
    return _prompt_s(tokens, "streamed-layers:ahead=0")


def _tokens() -> int:
    """The prompt whose compute is that share of the time."""
    low, high = SHORTEST, LONGEST
    for _ in range(STEPS):
        middle = (low + high) // 2
        low, high = (middle, high) if _prompt_s(middle) / _when_due_s(middle) < BUSY else (low, middle)
    return high


def figures() -> Iterator[Ours]:
    tokens = _tokens()
    ahead = _prompt_s(tokens, "streamed-layers:ahead=1")
    yield "throughput, layers ahead over layers when due", _when_due_s(tokens) / ahead
    yield "GPU utilisation, layers ahead", 100 * _prompt_s(tokens) / ahead
