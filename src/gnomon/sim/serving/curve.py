"""Sums of decode steps in closed form."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from gnomon.cost.step import Curve
from gnomon.errors import InputError

Curves = dict[int, "DecodeCurve"]
"""Decode curves of one step cost, by the number of decodes; runs on the same cost may share them."""
TRIALS = 6
"""Guesses along a line before the rest is halved."""


class DecodeCurve:
    """Seconds of consecutive decode steps of `sequences` requests.

    Each step adds one token to every sequence, so the mean context moves by exactly one. Its fraction
    f stays, and as the knots are whole numbers, t(c + f) = (1 - f) t(c) + f t(c + 1): any sum of steps
    follows from sums of t at whole numbers, which are quadratic inside a piece.
    """

    __slots__ = ("_knots", "_seconds", "_sequences", "_slopes", "_sums")

    def __init__(self, curve: Curve, sequences: int) -> None:
        knots = np.asarray(curve.context, float)
        seconds = np.asarray(curve.seconds, float)
        if not (seconds.size and np.isfinite(seconds).all() and (seconds > 0).all()):
            raise InputError(f"the cost of {sequences} decodes is not a positive time at every context")
        width = knots[1:] - knots[:-1]
        slopes = (seconds[1:] - seconds[:-1]) / width
        last = slopes[-1] if slopes.size else 0.0
        pieces = width * seconds[:-1] + slopes * width * (width - 1) / 2
        self._sequences = sequences
        self._knots: list[int] = np.asarray(curve.context).astype(np.int64).tolist()
        self._seconds: list[float] = seconds.tolist()
        self._slopes: list[float] = [*slopes.tolist(), float(last)]
        self._sums: list[float] = [0.0, *np.cumsum(pieces).tolist()]

    def one(self, context: int) -> float:
        """A step whose sequences have `context` cached tokens together."""
        mean = context / self._sequences
        i = bisect_right(self._knots, mean) - 1
        return self._seconds[i] + self._slopes[i] * (mean - self._knots[i])

    def span(self, context: int, steps: int) -> tuple[float, float]:
        """Seconds of the first `steps - 1` steps, and of all of them."""
        knots = self._knots
        mean = context / self._sequences
        i = bisect_right(knots, mean) - 1
        if i + 1 == len(knots) or mean + steps <= knots[i + 1]:
            slope = self._slopes[i]
            first = self._seconds[i] + slope * (mean - knots[i])
            before = steps - 1
            most = before * (first + slope * (before - 1) / 2)
            return most, most + first + slope * before
        start = self._below(context)
        end = context + steps * self._sequences
        return self._below(end - self._sequences) - start, self._below(end) - start

    def steps_until(self, context: int, wait_s: float, most: int) -> int:
        """The fewest steps that last at least `wait_s`, or `most`."""
        if wait_s <= 0:
            return 0
        knots = self._knots
        mean = context / self._sequences
        i = bisect_right(knots, mean) - 1
        slope = self._slopes[i]
        first = self._seconds[i] + slope * (mean - knots[i])
        inside = most if i + 1 == len(knots) else min(most, int(knots[i + 1] - mean))
        if inside * (first + slope * (inside - 1) / 2) < wait_s:
            return most if inside == most else self._search(context, wait_s, inside, most)
        guess = min(wait_s / first, inside)
        steps = min(int(wait_s / (first + slope * guess / 2)), inside)
        while steps < inside and steps * (first + slope * (steps - 1) / 2) < wait_s:
            steps += 1
        while steps > 0 and (steps - 1) * (first + slope * (steps - 2) / 2) >= wait_s:
            steps -= 1
        return steps

    def _search(self, context: int, wait_s: float, low: int, high: int) -> int:
        """`steps_until` beyond the piece that the first `low` steps are in, which end before the wait does: where a
        straight line between two known sums meets the wait. Steps differ little, so that two or three trials find it;
        halves, where they do not."""
        trials, start = 0, self._below(context)
        short, long = (self._below(context + steps * self._sequences) - start for steps in (low, high))
        if long < wait_s:
            return high
        while low + 1 < high:
            trials += 1
            share = (wait_s - short) / (long - short) if trials < TRIALS else 0.5
            middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
            lasts = self._below(context + middle * self._sequences) - start
            if lasts >= wait_s:
                high, long = middle, lasts
            else:
                low, short = middle, lasts
        return high

    def _below(self, context: int) -> float:
        """The sum of t(0), t(1) … below the mean context, read between whole numbers."""
        whole, rest = divmod(context, self._sequences)
        i = bisect_right(self._knots, whole) - 1
        width = whole - self._knots[i]
        here = self._seconds[i] + self._slopes[i] * width
        full = self._sums[i] + width * (self._seconds[i] + self._slopes[i] * (width - 1) / 2)
        return full + here * rest / self._sequences
