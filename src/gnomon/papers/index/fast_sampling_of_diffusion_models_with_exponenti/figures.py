"""DEIS (Zhang and Chen 2022): fifty thousand small pictures from ten evaluations each, on one RTX A6000."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours
from gnomon.spec.answers import ModulePrediction

ON, PICTURES, EVALUATIONS = "RTX-A6000", 50_000, 10
MINUTE, MEGA = 60.0, 1e6


def figures() -> Iterator[Ours]:
    found = gnomon.predict(
        Path(__file__).with_name("ddpmpp.trace.json.gz"), on=ON, settings={"tf32": True, "fused": True}
    )
    assert isinstance(found, ModulePrediction)
    yield "50,000 pictures", PICTURES * EVALUATIONS / found.tokens_per_s / MINUTE
    yield "DDPM++ parameters", found.parameters / MEGA
