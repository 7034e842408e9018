"""What a formula leaves over, as fitted: a smooth surface over the sizes of an operator.

log(measured / formula) on a coarse grid of log2 sizes, linear between its knots and constant beyond its ends, so that
it adds nothing where nothing was measured. It is small by construction (`MOST`), and along no size does it fall
by more than its `Axis.fall` an octave, but for the rounding of what is stored, so that more work is practically never
faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import exp, log2
from typing import Any

import numpy as np

from gnomon.spec.workload import Floats

MOST = 0.3
FALL = 0.12
SCALE = 1000
"""Values are kept in thousandths."""

Sizes = Mapping[str, Any]
"""Arrays, or plain numbers."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One size on which a residual may lie, from 2**low to 2**high."""

    name: str
    of: Callable[[Sizes], Any]
    low: float
    high: float
    knots: int
    fall: float = FALL
    """By how much the surface may fall an octave; 0 where a formula is level over this size."""

    @property
    def step(self) -> float:
        return (self.high - self.low) / (self.knots - 1)

    @property
    def most_fall(self) -> float:
        """The same of stored values, which are rounded: two neighbours may come apart by one unit more."""
        return self.fall + 1 / (SCALE * self.step)


@dataclass(frozen=True)
class Residual:
    """Values on the grid of the axes, the last axis running fastest."""

    axes: tuple[Axis, ...]
    values: Floats

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        counts = [axis.knots for axis in self.axes]
        return tuple(int(np.prod(counts[i + 1 :])) for i in range(len(counts)))

    @cached_property
    def _plain(self) -> list[float]:
        return [float(value) for value in self.values]

    def factor(self, sizes: Sizes) -> Floats:
        """What the formula's seconds are multiplied by, row by row."""
        with np.errstate(divide="ignore", invalid="ignore"):
            places = [weights(axis, axis.of(sizes)) for axis in self.axes]
        total = np.zeros(1)
        for corner in product((0, 1), repeat=len(places)):
            index, share = np.zeros(1, np.int64), np.ones(1)
            for (knot, part), stride, end in zip(places, self._strides, corner, strict=True):
                index = index + (knot + end) * stride
                share = share * (part if end else 1.0 - part)
            total = total + share * self.values[index]
        return np.asarray(np.exp(total))

    def one(self, sizes: Mapping[str, float]) -> float:
        """`factor` for one operator, in plain floats."""
        corners = [(0, 1.0)]
        for axis, stride in zip(self.axes, self._strides, strict=True):
            place = min(max((log2(max(axis.of(sizes), 1e-9)) - axis.low) / axis.step, 0.0), axis.knots - 1.0)
            knot = min(int(place), axis.knots - 2)
            part, at = place - knot, knot * stride
            corners = [
                (index + start, share * rest)
                for index, share in corners
                for start, rest in ((at, 1.0 - part), (at + stride, part))
            ]
        plain = self._plain
        return exp(sum(share * plain[index] for index, share in corners))

    def at(self, known: Sizes) -> Residual:
        """What is left of it where some sizes stay as they are: the axes that depend on no other ones are gone."""
        axes, values = list(self.axes), self.values.reshape([axis.knots for axis in self.axes])
        for place in reversed(range(len(axes))):
            try:
                size = axes[place].of(known)
            except KeyError:
                continue
            (knot,), (part,) = weights(axes[place], np.array([size]))
            values = (1.0 - part) * values.take(knot, place) + part * values.take(knot + 1, place)
            del axes[place]
        return Residual(tuple(axes), values.ravel())

    def to_dict(self) -> dict[str, Any]:
        grid = {axis.name: [axis.low, axis.high, axis.knots] for axis in self.axes}
        return {"axes": grid, "thousandths": " ".join(str(round(float(value) * SCALE)) for value in self.values)}


def weights(axis: Axis, size: Any) -> tuple[Any, Floats]:
    """The knot below each size, and how far it stands from that to the next."""
    place = np.clip((np.log2(np.fmax(size, 1e-9)) - axis.low) / axis.step, 0.0, axis.knots - 1.0)
    knot = np.minimum(place.astype(np.int64), axis.knots - 2)
    return knot, np.asarray(place - knot)


def residual_from_dict(data: Mapping[str, Any], axes: Sequence[Axis]) -> Residual:
    """A stored residual, on the axes of its kind of operator; one on other axes is refused."""
    known = {axis.name: axis for axis in axes}
    found = []
    for name, (low, high, knots) in data["axes"].items():
        if name not in known:
            raise ValueError(f"a residual lies on '{name}', not on {', '.join(known) or 'any size'}")
        if not (isinstance(knots, int) and 2 <= knots <= 64 and -64 <= low < high <= 64):
            raise ValueError(f"a residual's knots along {name} are {low}, {high}, {knots}")
        found.append(replace(known[name], low=float(low), high=float(high), knots=knots))
    values = np.array([int(word) for word in str(data["thousandths"]).split()]) / SCALE
    if values.size != np.prod([axis.knots for axis in found]):
        raise ValueError(f"a residual has {values.size} values")
    if np.abs(values).max() > MOST * (1 + 1e-9):
        raise ValueError(f"a residual goes beyond {MOST}")
    return Residual(tuple(found), values)
