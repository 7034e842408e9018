"""Sums of decode steps in closed form."""

from __future__ import annotations

from bisect import bisect_right
from math import inf

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.step import Curve, StepCost
from gnomon.errors import InputError

Curves = dict[int, "DecodeCurve"]
"""Decode curves of one step cost, by the number of decodes, and beyond those by the level of the clock; runs on the
same cost may share them."""
BY_VARIANT = 1 << 20
"""Curves of one variant stand so far from those of the next in `Curves`."""
STRAIGHT = 1e-9
"""A change of slope, of a curve's largest figure over its range, that is rounding."""
TRIALS = 6
"""Guesses along a line before the rest is halved."""


def decode_curve(cost: StepCost, decodes: int, slowdown: float, variant: int) -> Curve:
    """Of a step cost, which need not know variants where there are none."""
    if not variant:
        return cost.decode_curve(decodes, slowdown)
    return cost.varied_curve(decodes, slowdown, variant)


class CurveKnots:
    """The knots of a curve, and how far apart they are."""

    __slots__ = ("context", "knots", "less", "width")

    def __init__(self, context: NDArray[np.int64]) -> None:
        self.context = context
        self.knots: list[int] = np.asarray(context).astype(np.int64).tolist()
        knots = np.asarray(context, float)
        self.width = knots[1:] - knots[:-1]
        self.less = self.width - 1


_last_knots = CurveKnots(np.zeros(1, np.int64))


def knots_of(context: NDArray[np.int64]) -> CurveKnots:
    """Of an array that all curves of a step cost have in common, so that the last one is kept."""
    global _last_knots
    axis = _last_knots
    if axis.context is not context:
        axis = _last_knots = CurveKnots(context)
    return axis


def ending_twice(slopes: NDArray[np.float64]) -> list[float]:
    """Slopes between knots, and behind the last of them the last slope again."""
    found: list[float] = slopes.tolist()
    found.append(found[-1] if found else 0.0)
    return found


class StepSums:
    """A figure of consecutive decode steps of `sequences` requests, and its sums.

    Each step adds one token to every sequence, so the mean context moves by exactly one. Its fraction
    f stays, and as the knots are whole numbers, t(c + f) = (1 - f) t(c) + f t(c + 1): any sum of steps
    follows from sums of t at whole numbers, which are quadratic inside a piece.
    """

    __slots__ = ("_knots", "_sequences", "_slopes", "_sums", "_values")

    def __init__(self, context: NDArray[np.int64], values: NDArray[np.float64], sequences: int) -> None:
        axis = knots_of(context)
        width = axis.width
        slopes = (values[1:] - values[:-1]) / width
        pieces = width * values[:-1] + slopes * width * axis.less / 2
        self._sequences = sequences
        self._knots = axis.knots
        self._values: list[float] = values.tolist()
        self._slopes = ending_twice(slopes)
        self._sums: list[float] = [0.0, *pieces.cumsum().tolist()]

    def one(self, context: int) -> float:
        """A step whose sequences have `context` cached tokens together."""
        mean = context / self._sequences
        i = bisect_right(self._knots, mean) - 1
        return self._values[i] + self._slopes[i] * (mean - self._knots[i])

    def span(self, context: int, steps: int) -> tuple[float, float]:
        """The sum of the first `steps - 1` steps, and of all of them."""
        knots = self._knots
        mean = context / self._sequences
        i = bisect_right(knots, mean) - 1
        if i + 1 == len(knots) or mean + steps <= knots[i + 1]:
            slope = self._slopes[i]
            first = self._values[i] + slope * (mean - knots[i])
            before = steps - 1
            most = before * (first + slope * (before - 1) / 2)
            return most, most + first + slope * before
        start, sequences = self._below(context), self._sequences
        end = context + steps * sequences
        return self._below(end - sequences) - start, self._below(end) - start

    def _below(self, context: int) -> float:
        """The sum of t(0), t(1) … below the mean context, read between whole numbers."""
        sequences, knots = self._sequences, self._knots
        whole = context // sequences
        i = bisect_right(knots, whole) - 1
        width, value, slope = whole - knots[i], self._values[i], self._slopes[i]
        full = self._sums[i] + width * (value + slope * (width - 1) / 2)
        return full + (value + slope * width) * (context - whole * sequences) / sequences


class DecodeCurve(StepSums):
    """Seconds of consecutive decode steps, and their joules where those are known."""

    __slots__ = ("_clocked", "_clocked_slopes", "_first_j", "_joules", "_more_j")

    def __init__(self, curve: Curve, sequences: int, full: DecodeCurve | None = None) -> None:
        """`full` is the curve of the same steps at full clock, where this is another one."""
        seconds = np.asarray(curve.seconds, float)
        if not (seconds.size and seconds.min() > 0 and seconds.max() < inf):
            raise InputError(f"the cost of {sequences} decodes is not a positive time at every context")
        super().__init__(curve.context, seconds, sequences)
        self._clocked: list[float] = []
        self._clocked_slopes: list[float] = []
        self._joules: StepSums | None = None
        self._first_j = self._more_j = 0.0
        """Of a step without cached tokens, and for each one more of every sequence, where that is a straight line."""
        if full is not None:
            self._joules, self._first_j, self._more_j = full._joules, full._first_j, full._more_j
        elif curve.clocked_s is not None and curve.joules is not None:
            self._clocked = curve.clocked_s.tolist()
            clocked = curve.clocked_s
            self._clocked_slopes = ending_twice((clocked[1:] - clocked[:-1]) / knots_of(curve.context).width)
            self._first_j = float(curve.joules[0])
            if curve.context.size > 1:
                self._more_j = float(curve.joules[-1] - curve.joules[0]) / float(curve.context[-1])
            line = self._first_j + self._more_j * curve.context
            if np.abs(curve.joules - line).max() > STRAIGHT * np.abs(line).max():
                self._joules = StepSums(curve.context, curve.joules, sequences)

    def demand(self, context: int) -> tuple[float, float]:
        """Of a step of a curve at full clock: the share of its time that follows the clock, and its watts beyond the
        constant draw."""
        mean, knots = context / self._sequences, self._knots
        i = bisect_right(knots, mean) - 1
        more = mean - knots[i]
        seconds = self._values[i] + self._slopes[i] * more
        joules = self._first_j + self._more_j * mean if self._joules is None else self._joules.one(context)
        return (self._clocked[i] + self._clocked_slopes[i] * more) / seconds, joules / seconds

    def joules(self, context: int, steps: int) -> float:
        """Of so many steps at full clock, beyond the constant draw."""
        if self._joules is None:
            return steps * (self._first_j + self._more_j * (context / self._sequences + (steps - 1) / 2))
        return self._joules.span(context, steps)[1]

    def span_until(self, context: int, wait_s: float, most: int, look: int) -> tuple[int, float, float]:
        """`look` more than the fewest steps that last at least `wait_s`, or `most` in all; with them, their `span`."""
        most -= look
        if wait_s <= 0:
            return (look, *self.span(context, look))
        knots = self._knots
        mean = context / self._sequences
        i = bisect_right(knots, mean) - 1
        slope = self._slopes[i]
        first = self._values[i] + slope * (mean - knots[i])
        last = i + 1 == len(knots)
        inside = most if last else int(knots[i + 1] - mean)
        if inside > most:
            inside = most
        if inside * (first + slope * (inside - 1) / 2) < wait_s:
            if inside < most:
                return self._search(context, wait_s, inside, most, look)
            steps = most
        else:
            guess = wait_s / first
            steps = int(wait_s / (first + slope * (guess if guess < inside else inside) / 2))
            if steps > inside:
                steps = inside
            while steps < inside and steps * (first + slope * (steps - 1) / 2) < wait_s:
                steps += 1
            while steps > 0 and (steps - 1) * (first + slope * (steps - 2) / 2) >= wait_s:
                steps -= 1
        steps += look
        if last or mean + steps <= knots[i + 1]:
            before = steps - 1
            most_s = before * (first + slope * (before - 1) / 2)
            return steps, most_s, most_s + first + slope * before
        sequences, start = self._sequences, self._below(context)
        end = context + steps * sequences
        return steps, self._below(end - sequences) - start, self._below(end) - start

    def _search(self, context: int, wait_s: float, low: int, high: int, look: int) -> tuple[int, float, float]:
        """`span_until` beyond the piece that the first `low` steps are in, which end before the wait does: where a
        straight line between two known sums meets the wait. Steps differ little, so that two or three trials find it;
        halves, where they do not."""
        trials, start, sequences = 0, self._below(context), self._sequences
        long = self._below(context + high * sequences) - start
        if long >= wait_s:
            short = self._below(context + low * sequences) - start
            while low + 1 < high:
                trials += 1
                share = (wait_s - short) / (long - short) if trials < TRIALS else 0.5
                middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
                lasts = self._below(context + middle * sequences) - start
                if lasts >= wait_s:
                    high, long = middle, lasts
                else:
                    low, short = middle, lasts
        end = context + (high + look) * sequences
        before = long if look == 1 else self._below(end - sequences) - start
        return high + look, before, self._below(end) - start
