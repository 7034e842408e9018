"""OLSS (Duan et al. 2023): how many steps of Stable Diffusion one second of an A100 has room for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

ON, STEPS, SECOND = "A100-SXM-80GB", 10, 1.0


def _seconds(name: str) -> float:
    return float(gnomon.predict(Path(__file__).with_name(f"{name}.trace.json.gz"), on=ON).time_s.value)


def figures() -> Iterator[Ours]:
    step, once = _seconds("unet"), _seconds("text") + _seconds("decoder")
    yield "steps in one second", (SECOND - once) / step
    yield "a picture of 10 steps", once + STEPS * step
