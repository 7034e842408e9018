"""Fits to published collectives, by library and link: coefficients, their error on held-out rows, their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import log2
from typing import Any

import numpy as np

from gnomon.catalog.base import DATA, packaged
from gnomon.errors import CalibrationError
from gnomon.spec.workload import Floats

FILE = DATA / "collectives.yaml"
SCHEMA = "gnomon.collectives/1"
FIRST, SCALE = 9, 1000
"""The octave at which steps begin, and what they are kept in: thousandths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFit:
    """One library on one kind of link. Shares are of the link's bandwidth, seconds are those of small messages."""

    coefficients: Mapping[str, float]
    spread: float
    """Of log(predicted / measured) on operators or sizes set aside."""
    shared: float
    source: str
    steps: Mapping[tuple[str, int], Floats] = field(default_factory=dict)
    """By operator and ranks, log(measured / formula) at each octave of bytes from 2**`FIRST`: where a library goes from
    one protocol to the next, which no formula of a few figures knows."""
    between: float = 0.0
    """The spread with them, on octaves set aside."""

    def spread_of(self, op: str) -> float:
        return self.between if any(known == op for known, _ in self.steps) else self.spread

    def factor(self, op: str, payload: Floats, ranks: int) -> Floats:
        """What the formula is multiplied by: straight between octaves and, over the ranks, between those measured. With
        more ranks than that, a step up that is taken back at larger sizes is not known to be there."""
        known = sorted(count for name, count in self.steps if name == op)
        if not known:
            return np.ones_like(payload)
        low = max((count for count in known if count <= ranks), default=known[0])
        high = min((count for count in known if count >= ranks), default=known[-1])
        part = 0.0 if low == high else log2(ranks / low) / log2(high / low)
        values = (1 - part) * self.steps[op, low] + part * self.steps[op, high]
        if ranks > known[-1]:
            values = np.minimum.accumulate(values[::-1])[::-1]
        place = np.log2(np.maximum(payload, 1.0)) - FIRST
        return np.asarray(np.exp(np.interp(place, np.arange(values.size), values)))


def link_fit(library: str, link: str) -> LinkFit | None:
    """The fit of a library on a link of that name, if there is one."""
    return link_fits().get(library, {}).get(link)


@cache
def link_fits() -> Mapping[str, Mapping[str, LinkFit]]:
    """Every fit of the shipped file, by library and link."""
    data = packaged(FILE)
    if data.get("schema") != SCHEMA:
        raise CalibrationError(f"is '{data.get('schema')}', not {SCHEMA}", where=str(FILE))
    return {library: {link: _fit(found) for link, found in links.items()} for library, links in data["fits"].items()}


def _fit(found: Mapping[str, Any]) -> LinkFit:
    steps = {}
    for name, words in found.get("steps", {}).items():
        op, _, ranks = name.partition(" ")
        steps[op, int(ranks)] = np.array([int(word) for word in words.split()]) / SCALE
    return LinkFit(
        coefficients=found["coefficients"],
        spread=found["spread"],
        shared=found["shared"],
        source=found["source"],
        steps=steps,
        between=found.get("between", 0.0),
    )
