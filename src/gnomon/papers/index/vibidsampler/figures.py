"""ViBiDSampler (Yang et al. 2024): frames between two pictures, each step once forward in time and once back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours
from gnomon.spec.answers import ModulePrediction

ON, STEPS, WAYS, FRAMES = "RTX-3090", 25, 2, 25


def _step(name: str) -> ModulePrediction:
    found = gnomon.predict(Path(__file__).with_name(f"{name}.trace.json.gz"), on=ON)
    assert isinstance(found, ModulePrediction)
    return found


def figures() -> Iterator[Ours]:
    decoded = FRAMES / _step("decoder").tokens_per_s
    yield "25 frames", STEPS * WAYS * _step("unet").time_s.value + decoded
