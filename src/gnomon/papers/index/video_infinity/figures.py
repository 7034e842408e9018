"""Video-Infinity (Tan et al. 2024): a long video in clips, one on each GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

ON, GPUS, FRAMES, CLIP, STEPS, MINUTE = "RTX-6000-Ada", 8, 2300, 24, 30, 60.0


def _seconds(name: str) -> float:
    return float(gnomon.predict(Path(__file__).with_name(f"{name}.trace.json.gz"), on=ON).time_s.value)


def figures() -> Iterator[Ours]:
    clips = FRAMES / GPUS / CLIP
    yield "2,300 frames", clips * (STEPS * _seconds("unet") + _seconds("decoder")) / MINUTE
