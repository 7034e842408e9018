"""SHViT (Yun and Ro 2024): pictures a second on one A100, beside MobileViTv2, from traces of both."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours
from gnomon.spec.answers import ModulePrediction

ON, MEGA = "A100-SXM-80GB", 1e6


@cache
def _step(name: str) -> ModulePrediction:
    found = gnomon.predict(Path(__file__).with_name(f"{name}.trace.json.gz"), on=ON)
    assert isinstance(found, ModulePrediction)
    return found


def figures() -> Iterator[Ours]:
    for name in ("s1", "s2", "s3", "s4"):
        yield name.upper(), _step(name).tokens_per_s
    other, own = _step("mobilevitv2"), _step("s4")
    yield "MobileViTv2 1.0", other.tokens_per_s
    yield "S4 over MobileViTv2 1.0", own.tokens_per_s / other.tokens_per_s
    yield "parameters of S4", own.parameters / MEGA
    yield "multiplications of a picture of S4", own.flops / 2 / (own.tokens_per_s * own.time_s.value) / MEGA
