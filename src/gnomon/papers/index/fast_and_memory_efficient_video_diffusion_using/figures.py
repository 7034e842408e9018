"""Streamlined inference (Zhan et al. 2024): the memory of a video network whose operators run slice by slice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

ON, GIB = "A100-SXM-80GB", 1024.0**3
IMAGE_ENCODER = 632e6 * 2
"""Bytes of CLIP's weights."""


@cache
def _parts(name: str) -> dict[str, float]:
    return dict(gnomon.predict(Path(__file__).with_name(f"{name}.trace.json.gz"), on=ON).memory_parts)


def _gib(sliced: str) -> float:
    """The fuller of U-Net and decoder at work, beside all weights and the runtime. The U-Net needs less than a sliced
    decoder without being sliced."""
    at_work = [_parts(name) for name in ("unet", f"decoder{sliced}")]
    weights = IMAGE_ENCODER + sum(one["parameters"] for one in at_work)
    return (weights + max(one["activations"] + one["inputs"] + one["runtime"] for one in at_work)) / GIB


def figures() -> Iterator[Ours]:
    plain, sliced = _gib(""), _gib("-sliced")
    yield "plain", plain
    yield "sliced", sliced
    yield "sliced over plain", sliced / plain
