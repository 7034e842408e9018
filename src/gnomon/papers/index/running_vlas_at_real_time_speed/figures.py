"""Running VLAs at Real-time Speed (Ma et al. 2025): pi0 on one card, from plain modules to a graph of fused chains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

ON = "RTX-4090"
PARTS = {"vision": 1, "language": 1, "step": 10}
"""Modules, and how often each runs."""
NAIVE, GRAPH, TUNED = {"launch": "eager"}, {"launch": "graph"}, {"launch": "graph", "fused": True}
WORDS = {1: "1 picture", 2: "2 pictures", 3: "3 pictures"}
MILLI, FRAME_MS = 1e-3, 1000 / 30


def _ms(views: int, network: str, settings: Mapping[str, object]) -> float:
    files = {part: Path(__file__).with_name(f"{part}-{views}-{network}.trace.json.gz") for part in PARTS}
    each = {part: gnomon.predict(file, on=ON, settings=settings).time_s.value for part, file in files.items()}
    return sum(times * each[part] for part, times in PARTS.items()) / MILLI


def figures() -> Iterator[Ours]:
    for views, words in WORDS.items():
        tuned = _ms(views, "joined", TUNED)
        yield f"{words}, tuned kernels", tuned
        yield f"{words}, naive", _ms(views, "plain", NAIVE)
        if views == 2:
            yield f"{words} within a frame of 30 Hz (1 for yes)", float(tuned <= FRAME_MS)
    yield "2 pictures, simplified graph", _ms(2, "joined", GRAPH)
    yield "2 pictures, captured graph", _ms(2, "plain", GRAPH)
