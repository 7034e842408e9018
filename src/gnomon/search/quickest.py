"""The fastest of many plans, exactly, from a lower bound of each and few evaluations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnomon.spec.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Quickest:
    """Places of the best and the next best that was evaluated, with their values."""

    best: int
    value: float
    second: int | None
    second_value: float | None
    evaluated: int
    bound: float
    """No plan that was not evaluated is below this."""


def quickest(
    bounds: Floats,
    evaluate: Callable[[int], float],
    progress: Callable[[int], None] | None = None,
    *,
    needs: Floats | None = None,
) -> Quickest:
    """Evaluate plans, the most hopeful first, until no bound left is below the second best value, so that the best
    two are certain. Of equal ones the first in order of bound, then of what it needs (memory, say), then of place,
    wins."""
    order = np.argsort(bounds, kind="stable") if needs is None else np.lexsort((needs, bounds))
    found: list[tuple[float, int]] = []
    best = second = np.inf
    for count, place in enumerate(order.tolist()):
        if bounds[place] >= second or not np.isfinite(bounds[place]):
            break
        value = evaluate(place)
        found.append((value, count))
        best, second = sorted((best, second, value))[:2]
        if progress:
            progress(count + 1)
    ranked = sorted(found)
    places = [int(order[count]) for _, count in ranked]
    left = bounds[order[len(found)]] if len(found) < order.size else np.inf
    return Quickest(
        best=places[0],
        value=ranked[0][0],
        second=places[1] if len(places) > 1 else None,
        second_value=ranked[1][0] if len(places) > 1 else None,
        evaluated=len(found),
        bound=float(left),
    )
