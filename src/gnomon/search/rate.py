"""The highest rate, or the fewest replicas, that hold, by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable

TOLERANCE = 0.01
"""Relative width at which a bisection stops."""
FULL_TOLERANCE = 0.03
"""The same on the full load, whose runs are long."""


def highest(holds: Callable[[float], bool], held: float, beyond: float, tolerance: float = TOLERANCE) -> float:
    """The highest rate found to hold between one that does and one taken not to, both above zero.

    The steps are geometric: the answer is within `tolerance` of the border, from below.
    """
    while beyond > held * (1 + tolerance):
        middle = math.sqrt(held * beyond)
        if holds(middle):
            held = middle
        else:
            beyond = middle
    return held


def lowered(holds: Callable[[float], bool], tried: float, least: float, tolerance: float = TOLERANCE) -> float | None:
    """The highest rate found to hold of one that may not and those below it: down in growing steps, then back to the
    border. None where not even `least` holds."""
    rate, failed, step = tried, 0.0, tolerance
    while not holds(rate):
        if rate <= least:
            return None
        failed, rate, step = rate, max(least, rate / (1 + step)), 2 * step
    return highest(holds, rate, failed, tolerance) if failed else rate


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
