"""Ladder-residual (Zhang et al. 2025): tokens per second of a 70B under gpt-fast, with all-reduces behind blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster
from gnomon.spec.answers import Prediction

GIVEN, MADE = 1024, 512
LADDER = ("ladder-residual",)
ROWS = ((2, 1), (4, 1), (8, 1), (4, 16), (8, 4), (8, 16), (8, 64))
"""Tensor-parallel ranks and sequences."""
GAINS = ((8, 1), (8, 4), (8, 64), (4, 1))


@cache
def _steps(ranks: int, batch: int, techniques: tuple[str, ...], links: bool) -> tuple[Prediction, Prediction]:
    """A prompt, and a token of every sequence, which attends to the whole static cache."""
    words: dict[str, Any] = {
        "on": cluster("H100-SXM-80GB", ranks, 8, links={} if links else {"scaleup": "PCIe 5.0 x16"}),
        "tp": ranks,
        "engine": "gptfast",
        "techniques": techniques,
    }
    decode = gnomon.predict("llama-3-70b", phase="decode", batch=batch, context=GIVEN + MADE, **words)
    return gnomon.predict("llama-3-70b", phase="prefill", tokens=GIVEN, **words), decode


def _rate(ranks: int, batch: int, techniques: tuple[str, ...] = (), links: bool = True, sums: bool = True) -> float:
    """Tokens per second of a batch, prompts included; without `sums` all-reduces take no time."""
    prompt, decode = (
        found.time_s.value
        - (0.0 if sums else sum(one.time_s.value for one in found.breakdown if one.kind == "all_reduce"))
        for found in _steps(ranks, batch, techniques, links)
    )
    return float(batch * MADE / (MADE * decode + batch * prompt))


def figures() -> Iterator[Ours]:
    for ranks, batch in ROWS:
        where = f"TP {ranks}, batch {batch}"
        yield f"{where}: standard", _rate(ranks, batch)
        yield f"{where}: ladder", _rate(ranks, batch, LADDER)
        if ranks == 8:
            yield f"{where}: no communication", _rate(ranks, batch, sums=False)
    for ranks, batch in GAINS:
        yield f"TP {ranks}, batch {batch}: ladder over standard", _rate(ranks, batch, LADDER) / _rate(ranks, batch)
    yield "TP 8, batch 1, no NVLink: standard", _rate(8, 1, links=False)
    yield "TP 8, batch 1, no NVLink: ladder", _rate(8, 1, LADDER, links=False)
