"""The fastest of many plans, exactly, from a lower bound of each and few evaluations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnomon.spec.workload import Floats

EQUAL = 1e-9
"""Values that differ by no more than this share are equal: sums in another order round differently."""


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
    limit: float = np.inf,
) -> Quickest:
    """Evaluate plans, the most hopeful first, until no bound left is below the second best value, so that the best
    two are certain. Of equal ones the one that needs least (by its place in an order of preference, say) wins, then
    the first in order of bound, then of place. Plans whose bounds are not below `limit` are left out, as better ones
    are known; some bound has to be below it."""
    order = np.argsort(bounds, kind="stable") if needs is None else np.lexsort((needs, bounds))
    found: list[tuple[float, int]] = []
    best = second = np.inf
    for count, place in enumerate(order.tolist()):
        if bounds[place] >= min(second, limit) or not np.isfinite(bounds[place]):
            break
        value = evaluate(place)
        found.append((value, count))
        best, second = sorted((best, second, value))[:2]
        if progress:
            progress(count + 1)
    ranked = sorted(found)
    equal = [pair for pair in ranked if pair[0] <= ranked[0][0] * (1 + EQUAL)]
    if needs is not None and len(equal) > 1:
        chosen = min(equal, key=lambda pair: (needs[order[pair[1]]], pair[1]))
        ranked = [chosen, *(pair for pair in ranked if pair is not chosen)]
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
