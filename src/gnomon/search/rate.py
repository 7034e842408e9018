"""The highest rate, or the fewest replicas, that hold, in few trials."""

from __future__ import annotations

import math
from collections.abc import Callable

TOLERANCE = 0.01
"""Relative width at which a search for a rate stops."""
FULL_TOLERANCE = 0.03
"""Relative width at which a search for a rate on the full load stops, whose runs are long."""
STRAIGHT = 0.5
"""Room, as a logarithm, up to which it falls about straight with the rate's logarithm: further away, and beyond the
point where a queue overflows, it says no more than which side of the border a rate is on."""
STEEPNESS = 2.0
"""How fast room falls with the rate, until two trials say more."""
AIM = 1 / 3
"""Of the width at which a search stops: so far beside the border that is expected the next trial is made, on the side
that leaves less between what holds and what does not."""

Room = Callable[[float], float]
"""What a rate leaves of the limits, as a logarithm: zero or more where it holds, below zero where it does not, minus
infinity where no more than that is known."""


def highest(room: Room, held: float, beyond: float, tolerance: float = TOLERANCE, *, known: float = math.inf) -> float:
    """The highest rate found to hold between one that does and one taken not to, both above zero.

    Where it is `known` how little room the first one has, up by that, in steps that at least double; then to the
    border, see `_border`. The answer is within `tolerance` of it, from below.
    """
    rate, left, step, narrow = held, known, 0.0, math.log1p(tolerance)
    while left < STRAIGHT:
        step = max(2 * step, narrow, AIM * narrow + left / STEEPNESS)
        tried = rate * math.exp(step)
        if tried >= beyond:
            break
        found = room(tried)
        if found < 0:
            return _border(room, (rate, left), (tried, found), tolerance)
        rate, left = tried, found
    return _border(room, (rate, left), (beyond, -math.inf), tolerance)


def lowered(room: Room, tried: float, least: float, tolerance: float = TOLERANCE) -> float | None:
    """The highest rate found to hold of one that may not and those below it: down by what it lacks, in steps that at
    most double, then back to the border. None where not even `least` holds."""
    rate, found, narrow = tried, room(tried), math.log1p(tolerance)
    if found >= 0:
        return tried
    most, steepness = math.inf, STEEPNESS
    while rate > least:
        step = max(narrow, min(most, AIM * narrow + min(-found, STRAIGHT) / steepness))
        failed, rate, most = (rate, found), max(least, rate * math.exp(-step)), 2 * step
        found = room(rate)
        if found >= 0:
            return _border(room, (rate, found), failed, tolerance)
        if math.isfinite(failed[1]) and found > failed[1]:
            steepness = (found - failed[1]) / step
    return None


def _border(room: Room, low: tuple[float, float], high: tuple[float, float], tolerance: float) -> float:
    """The highest rate that holds, between two rates with their room.

    Tried is where a straight line between the two crosses zero, a little beside it; the middle where the room of one
    of them is not known, or where the last trial left more than half of what was between them.
    """
    narrow, halved = math.log1p(tolerance), True
    while high[0] > low[0] * (1 + tolerance):
        wide = math.log(high[0] / low[0])
        place = max(wide / 2, wide - math.log(2))
        if halved and math.isfinite(low[1]) and math.isfinite(high[1]):
            above, below = min(low[1], STRAIGHT), min(-high[1], STRAIGHT)
            place = above / (above + below) * wide
            place += -AIM * narrow if place > wide / 2 else AIM * narrow
            place = min(max(place, narrow / 4), wide - narrow / 4)
        rate = low[0] * math.exp(place)
        found = room(rate)
        low, high = ((rate, found), high) if found >= 0 else (low, (rate, found))
        halved = math.log(high[0] / low[0]) <= wide / 2 or not halved
    return low[0]


def raised(holds: Callable[[int], bool], tried: int, most: int, step: int = 1) -> int | None:
    """The smallest whole number found to hold from one that may not on: up in growing steps, then back to the border.
    None where not even `most` holds."""
    failed = tried - 1
    while not holds(min(tried, most)):
        if tried >= most:
            return None
        failed, tried, step = tried, min(tried + step, most), 2 * step
    return fewest(holds, failed + 1, min(tried, most))


def fewest(holds: Callable[[int], bool], least: int, most: int) -> int:
    """The smallest whole number that holds, of `least` to `most`; `most` is known to."""
    while least < most:
        middle = (least + most) // 2
        if holds(middle):
            most = middle
        else:
            least = middle + 1
    return most
