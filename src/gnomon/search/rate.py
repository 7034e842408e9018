"""The highest rate that holds, by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable

TOLERANCE = 0.01
"""Relative width at which a bisection stops."""


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


def fewest(holds: Callable[[int], bool], least: int, most: int) -> int:
    """The smallest whole number that holds, of `least` to `most`; `most` is known to."""
    while least < most:
        middle = (least + most) // 2
        if holds(middle):
            most = middle
        else:
            least = middle + 1
    return most
