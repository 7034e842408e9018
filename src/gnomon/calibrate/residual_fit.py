"""Fitting a residual: robust, smooth, small, and never steeply falling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import product

import numpy as np

from gnomon.cost.residual import MOST, Axis, Residual, Sizes, weights
from gnomon.spec.workload import Floats

SMOOTH, BEND, LEVEL = 0.05, 0.15, 1e-2
"""Weights of a slope, of a bend and of being there at all, beside one row's squared error."""
SCALE = 0.05
"""Errors beyond this count linearly."""
ROUNDS = 3
LEAST_ROWS = 60


def fit_residual(axes: Sequence[Axis], sizes: Sizes, left: Floats) -> Residual | None:
    """The surface through `left`, log(measured / formula); None where there are no axes or too few rows."""
    if not axes or left.size < LEAST_ROWS:
        return None
    grid = tuple(_within(axis, sizes) for axis in axes)
    design = _design(grid, sizes, left.size)
    held = _roughness([axis.knots for axis in grid])
    values: Floats = np.zeros(design.shape[1])
    for _ in range(ROUNDS):
        weight = 1 / np.sqrt(1 + ((left - design @ values) / SCALE) ** 2)
        normal = design.T @ (weight[:, None] * design) + held
        values = np.asarray(np.linalg.solve(normal, design.T @ (weight * left)))
    return Residual(grid, _tame(grid, values))


def _within(axis: Axis, sizes: Sizes) -> Axis:
    """The axis cut to the sizes that were measured, its knots about as far apart."""
    logs = np.log2(np.fmax(axis.of(sizes), 1e-9))
    low, high = max(float(np.min(logs)), axis.low), min(float(np.max(logs)), axis.high)
    if high - low < 1e-3:
        low, high = low - 0.5, low + 0.5
    knots = max(2, int(np.ceil((high - low) / axis.step - 1e-9)) + 1)
    return replace(axis, low=round(low, 3), high=round(high, 3), knots=knots)


def _design(axes: Sequence[Axis], sizes: Sizes, rows: int) -> Floats:
    places = [weights(axis, np.broadcast_to(axis.of(sizes), (rows,))) for axis in axes]
    counts = [axis.knots for axis in axes]
    found, each = np.zeros((rows, int(np.prod(counts)))), np.arange(rows)
    for corner in product((0, 1), repeat=len(axes)):
        index, share = np.zeros(rows, np.int64), np.ones(rows)
        for (knot, part), count, end in zip(places, counts, corner, strict=True):
            index = index * count + knot + end
            share = share * (part if end else 1.0 - part)
        found[each, index] += share
    return found


def _roughness(counts: Sequence[int]) -> Floats:
    total: Floats = LEVEL * np.eye(int(np.prod(counts)))
    for place, count in enumerate(counts):
        for order, weight in ((1, SMOOTH), (2, BEND)):
            if count > order:
                parts = [np.eye(each) for each in counts]
                parts[place] = np.diff(np.eye(count), n=order, axis=0)
                rows: Floats = reduce(lambda a, b: np.asarray(np.kron(a, b)), parts)
                total = total + weight * rows.T @ rows
    return total


def _tame(axes: Sequence[Axis], values: Floats) -> Floats:
    """Within its bounds, and along no axis falling by more than it may: halfway between the least surface
    above it that keeps to that and the greatest one below."""
    found = np.clip(values, -MOST, MOST).reshape([axis.knots for axis in axes])
    for place, axis in enumerate(axes):
        slope = axis.fall * axis.step * np.arange(axis.knots)
        ramp = slope.reshape([-1 if i == place else 1 for i in range(len(axes))])
        above = np.maximum.accumulate(found + ramp, axis=place) - ramp
        below = np.flip(np.minimum.accumulate(np.flip(found + ramp, place), axis=place), place) - ramp
        found = (above + below) / 2
    return np.asarray(np.round(np.clip(found, -MOST, MOST), 3).reshape(-1))
