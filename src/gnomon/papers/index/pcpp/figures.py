"""PCPP (Zhang et al. 2024): a picture in strips over several GPUs, which attend to all of it or to their neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gnomon
from gnomon.papers.base import Ours

ON = "A100-SXM-80GB"
STEPS, WAITED = 50, 5
"""Steps of a picture, and those at its start that wait for keys and values of all strips."""


@cache
def _seconds(name: str) -> float:
    """Of a step, as a captured graph."""
    trace = Path(__file__).with_name(f"{name}.trace.json.gz")
    return float(gnomon.predict(trace, on=ON, settings={"launch": "graph"}).time_s.value)


def _partly_s(name: str) -> float:
    """The mean step of a picture that attends to its neighbours after the first steps."""
    return (WAITED * _seconds(name) + (STEPS - WAITED) * _seconds(f"{name}-part")) / STEPS


def figures() -> Iterator[Ours]:
    for gpus, pixels in ((8, 3840), (4, 1024)):
        alone, words = _seconds(f"{pixels}"), f"{gpus} GPUs at {pixels:,} pixels"
        yield f"{words}, PCPP", alone / _partly_s(f"{pixels}-{gpus}")
        yield f"{words}, DistriFusion", alone / _seconds(f"{pixels}-{gpus}")
    for gpus in (2, 4, 8):
        yield f"{gpus} GPUs at 3,840 pixels, DistriFusion, its README", _seconds("3840") / _seconds(f"3840-{gpus}")
