"""Video-Infinity (Tan et al. 2024): a long video in clips, one on each GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

ON, GPUS, FRAMES, STEPS, MINUTE = "RTX-6000-Ada", 8, 2300, 30, 60.0
CLIP, DECODED = 288, 24
"""Frames of the traced network, one GPU's, and of the traced decoder."""


def _seconds(name: str) -> float:
    return float(gnomon.predict(Path(__file__).with_name(f"{name}.trace.json.gz"), on=ON).time_s.value)


def figures() -> Iterator[Ours]:
    frames = FRAMES / GPUS
    yield "2,300 frames", frames * (STEPS * _seconds("unet") / CLIP + _seconds("decoder") / DECODED) / MINUTE
