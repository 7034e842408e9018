"""The clock of a replica's chips while they serve: what the governor saw so far, and how slow it makes the next step.

The governor knows the work of the last moments, weighted by its window, and sets the clock at which that work would
draw the limit. The clock changes where a stretch of work ends: after a step with prompts, where the number of decodes
changes, after a pause, and while it has not settled, once a window. A stretch sees itself arrive in the average: its
clock is that of the average over it.
"""

from __future__ import annotations

from math import exp, inf

from gnomon.cost.governor import Governor
from gnomon.cost.step import StepCost
from gnomon.sim.serving.curve import BY_VARIANT, Curves, DecodeCurve, decode_curve

LEVEL = 0.01
"""Clocks that are told apart, as a share of the highest: an H200 has steps of 15 of 1,980 MHz."""
BY_LEVEL = 1 << 48
"""Curves of one level stand so far from those of the next in `Curves`."""


class ClockState:
    """The governor's average, and the stretch of work that runs."""

    __slots__ = (
        "_begun", "_busy_until", "_clocked", "_cost", "_curves", "_decodes", "_energy_share", "_free_w", "_governor",
        "_own_clocked", "_own_watts", "_slowdown_of", "_watts", "_window_s", "dynamic_j", "level", "slowdown", "until",
        "weighted_s",
    )  # fmt: skip

    def __init__(self, governor: Governor, cost: StepCost, curves: Curves) -> None:
        self._governor, self._cost, self._curves = governor, cost, curves
        self._free_w, self._window_s = governor.limit_w - governor.active_w, governor.window_s
        self._slowdown_of = governor.slowdown
        self._clocked = self._watts = self._own_clocked = self._own_watts = 0.0
        """Of the average and of the stretch: the share of time that follows the clock, and watts at full clock."""
        self._begun = self._busy_until = 0.0
        self._decodes = 0
        self.until = inf
        """When a stretch of decodes gives way to the next."""
        self.level, self.slowdown, self._energy_share = 0, 1.0, 1.0
        self.dynamic_j = 0.0
        """Joules so far beyond the constant draw."""
        self.weighted_s = 0.0
        """Busy seconds so far, each times its slowdown."""

    def mixed(self, start: float, work: tuple[float, float, float]) -> float:
        """Seconds of a step with prompts that starts then; `work` is at full clock."""
        seconds, clocked, joules = work
        self._decodes = 0
        self._begin(start, clocked / seconds, joules / seconds, seconds)
        if self.level:
            seconds += (self.slowdown - 1) * clocked
            joules *= self._energy_share
        self.dynamic_j += joules
        self._busy_until = start + seconds
        self.weighted_s += self.slowdown * seconds
        return seconds

    def curve(self, start: float, decodes: int, context: int, variant: int = 0) -> DecodeCurve:
        """Of decode steps that start then, with so many cached tokens together."""
        if variant:
            decodes += variant * BY_VARIANT
        if decodes != self._decodes or start >= self.until or start > self._busy_until:
            full = self._curves.get(decodes) or self._made(decodes, 0)
            clocked, watts = full.demand(context)
            self._begin(start, clocked, watts, self._window_s)
            self._decodes, level = decodes, self.level
            steady = round((self._slowdown_of(clocked, watts) - 1) / LEVEL) if watts > self._free_w else 0
            self.until = inf if level == steady else start + self._window_s
            if not level:
                return full
        return self._curves.get(decodes + self.level * BY_LEVEL) or self._made(decodes, self.level)

    def decoded(self, curve: DecodeCurve, end: float, context: int, steps: int, seconds: float) -> None:
        """So many decode steps ran until then, and took so long."""
        self.dynamic_j += curve.joules(context, steps) * self._energy_share
        self._busy_until = end
        self.weighted_s += self.slowdown * seconds

    def _begin(self, start: float, clocked: float, watts: float, lasts_s: float) -> None:
        """A stretch begins: the one before goes into the average, then the pause since. Its clock is that of its own
        average, in which a share is of what was before; an average of what stays below the limit stays below it."""
        busy_until, window, free, own = self._busy_until, self._window_s, self._free_w, self._own_watts
        keep = exp((self._begun - busy_until) / window)
        kept_watts = own + (self._watts - own) * keep
        own = self._own_clocked
        kept_clocked = own + (self._clocked - own) * keep
        if start > busy_until:
            idle = exp((busy_until - start) / window)
            kept_clocked *= idle
            kept_watts *= idle
        self._begun, self._own_clocked, self._own_watts = start, clocked, watts
        self._clocked, self._watts = kept_clocked, kept_watts
        level = 0
        if watts > free or kept_watts > free:
            passed = lasts_s / window
            before = (1 - exp(-passed)) / passed
            average = watts + (kept_watts - watts) * before
            if average > free:
                slowdown = self._slowdown_of(clocked + (kept_clocked - clocked) * before, average)
                level = round((slowdown - 1) / LEVEL)
        if level != self.level:
            self.level, self.slowdown = level, 1 + LEVEL * level
            self._energy_share = self._governor.energy_share(self.slowdown)

    def _made(self, decodes: int, level: int) -> DecodeCurve:
        variant, sequences = divmod(decodes, BY_VARIANT)
        known = decode_curve(self._cost, sequences, 1 + LEVEL * level, variant)
        made = DecodeCurve(known, sequences, self._curves.get(decodes))
        self._curves[decodes + level * BY_LEVEL] = made
        return made
