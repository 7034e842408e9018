"""Data-parallel ranks of one replica that step together: a loop over the schedulers of all ranks.

Decisions are each rank's own (`policies.ranked`); the step lasts as long as the busiest rank's, as all wait for each
other where they share experts. The rest is the loop of one scheduler (`station`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import numpy as np

from gnomon.cost.governor import Governor
from gnomon.cost.ranked import GroupStepCost, RankStep
from gnomon.cost.step import Curve, StepCost
from gnomon.sim.serving.base import Decision, Policy, Progress, Recorder
from gnomon.sim.serving.clock import LEVEL, ClockState
from gnomon.sim.serving.curve import Curves, DecodeCurve
from gnomon.sim.serving.log import RunLog
from gnomon.sim.serving.policies.ranked import Applied, RankedPolicy
from gnomon.sim.serving.run import ServingRun
from gnomon.sim.serving.station import Station
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Floats, Requests

FIRST_STEPS = 32
"""Steps that are added up at first where a wait may end soon."""
Known = dict[tuple[int, int, int], "_RankCurve"]


class _RankCurve:
    """A decode curve of one rank as arrays that reach as far as any context."""

    __slots__ = ("clocked_s", "context", "joules", "seconds")

    FAR = 1e7

    def __init__(self, curve: Curve) -> None:
        self.context = np.append(np.asarray(curve.context, float), self.FAR)
        self.seconds = self._on(curve.seconds)
        self.clocked_s = None if curve.clocked_s is None else self._on(curve.clocked_s)
        self.joules = None if curve.joules is None else self._on(curve.joules)

    def _on(self, values: Floats) -> Floats:
        """The last slope goes on."""
        x = self.context
        slope = (values[-1] - values[-2]) / (x[-2] - x[-3]) if values.size > 1 else 0.0
        return np.append(values, values[-1] + slope * (x[-1] - x[-2]))


class GroupCurve:
    """Seconds of consecutive decode steps of all ranks, from what they have cached now on; see `DecodeCurve`, whose
    `context` is not looked at here."""

    def __init__(self, cost: GroupStepCost, decodes: Sequence[tuple[int, int]], level: int, known: Known) -> None:
        self._cost, self._level = cost, level
        busy = [(count, context) for count, context in decodes if count]
        self._size = cost.size_of([count for count, _ in busy])
        key = cost.key_of(self._size)
        self._ranks = [(self._curve(known, count, key), context / count) for count, context in busy]
        self._ends: Floats = np.zeros(0)

    def _curve(self, known: Known, count: int, key: int) -> _RankCurve:
        found = known.get((count, key, self._level))
        if found is None:
            made = self._cost.rank_curve(count, self._size, 1 + LEVEL * self._level)
            found = known[count, key, self._level] = _RankCurve(made)
        return found

    def _until(self, steps: int) -> Floats:
        """When each of the first steps ends, from now on."""
        if self._ends.size < steps:
            at = np.arange(steps, dtype=float)
            each = [np.interp(mean + at, curve.context, curve.seconds) for curve, mean in self._ranks]
            self._ends = np.cumsum(np.max(each, axis=0))
        return self._ends

    def one(self, context: int) -> float:
        return float(self._until(1)[0])

    def span(self, context: int, steps: int) -> tuple[float, float]:
        ends = self._until(steps)
        return float(ends[steps - 2]) if steps > 1 else 0.0, float(ends[steps - 1])

    def span_until(self, context: int, wait_s: float, most: int, look: int) -> tuple[int, float, float]:
        steps = look + self._steps_until(wait_s, most - look)
        return (steps, *self.span(context, steps))

    def _steps_until(self, wait_s: float, most: int) -> int:
        if wait_s <= 0:
            return 0
        steps = min(FIRST_STEPS, most)
        while steps < most and self._until(steps)[steps - 1] < wait_s:
            steps = min(2 * steps, most)
        return min(int(np.searchsorted(self._until(steps)[:steps], wait_s)) + 1, most)

    @cached_property
    def _busiest(self) -> tuple[_RankCurve, float]:
        return max(self._ranks, key=lambda one: float(np.interp(one[1], one[0].context, one[0].seconds)))

    def demand(self, context: int) -> tuple[float, float]:
        """Of the busiest rank."""
        curve, mean = self._busiest
        assert curve.clocked_s is not None and curve.joules is not None
        figures = (curve.seconds, curve.clocked_s, curve.joules)
        seconds, clocked, joules = (float(np.interp(mean, curve.context, figure)) for figure in figures)
        return clocked / seconds, joules / seconds

    def joules(self, context: int, steps: int) -> float:
        """Of the mean rank."""
        at, found = np.arange(steps, dtype=float), 0.0
        for curve, mean in self._ranks:
            assert curve.joules is not None
            found += float(np.interp(mean + at, curve.context, curve.joules).sum())
        idle = self._cost.ranks - len(self._ranks)
        return (found + idle * steps * self._cost.idle_j(self._size)) / self._cost.ranks


class _GroupCost:
    """The cost of what the schedulers last decided, for a loop that knows one of them."""

    def __init__(self, cost: GroupStepCost, policy: RankedPolicy) -> None:
        self._cost, self._policy = cost, policy

    @classmethod
    def of(cls, cost: GroupStepCost, policy: RankedPolicy) -> StepCost:
        """What the loop asks a cost for; curves of decodes come from the station."""
        return cast(StepCost, cls(cost, policy))

    @property
    def governor(self) -> Governor | None:
        return self._cost.governor

    @property
    def _steps(self) -> list[RankStep]:
        parts = (part for part in self._policy.parts if part is not None and part.tokens)
        return [RankStep(part.decodes, part.context, part.chunks, part.tokens) for part in parts]

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return self._cost.group_work(self._steps)[0]

    def mixed_work(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]
    ) -> tuple[float, float, float]:
        return self._cost.group_work(self._steps)

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        """Of the rank that takes longest."""
        launches = (self._cost.launch(s.tokens, s.decodes + len(s.chunks), len(s.chunks)) for s in self._steps)
        return max(launches)


class _GroupClock(ClockState):
    """The clock of the busiest rank's chips, which the others wait for."""

    __slots__ = ("group",)

    group: RankedStation

    def _made(self, decodes: int, level: int) -> DecodeCurve:
        return self.group.curve(level)


class _RankLogs(RunLog):
    """What goes into the log of a replica goes into one for each rank too, as ranks pause their decodes apart."""

    __slots__ = ("_last", "_ranks", "_whole")

    def __init__(self, whole: RunLog, policy: RankedPolicy) -> None:
        super().__init__()
        self._whole, self._ranks = whole, policy
        self._last: list[RunLog] = []

    def share_times(self) -> None:
        """When the client has tokens is known now."""
        for log in (self._whole, *self._whole.ranks):
            log.through = self.through

    def decoded(self, start: float, end: float, steps: int, last_s: float) -> None:
        self._whole.decoded(start, end, steps, last_s)
        self._last = []
        for log, rank in zip(self._whole.ranks, self._ranks.ranks, strict=True):
            if rank.policy.decoding:
                log.decoded(start, end, steps, last_s)
                self._last.append(log)

    def stepped(self, start: float, end: float, decision: Decision, applied: Applied) -> None:
        self._whole.stepped(start, end, decision, applied)
        self._last = []
        for log, part, own in zip(self._whole.ranks, self._ranks.parts, self._ranks.applied, strict=True):
            if part is not None and own is not None:
                log.stepped(start, end, part, own)
                self._last.append(log)
            elif part is not None:
                log.preempted(part.preempted)

    def preempted(self, requests: Sequence[int]) -> None:
        self._whole.preempted(requests)
        for log, part in zip(self._whole.ranks, self._ranks.parts, strict=True):
            if part is not None:
                log.preempted(part.preempted)

    def delayed(self, left_s: float) -> None:
        self._whole.delayed(left_s)
        for log in self._last:
            log.delayed(left_s)


class RankedStation(Station):
    """The loop of ranks that step together. See `Station`."""

    __slots__ = ("_known", "_ranked")

    _policy: RankedPolicy  # type: ignore[assignment]

    def __init__(
        self,
        requests: Requests,
        cost: GroupStepCost,
        limits: ServingLimits,
        policy: RankedPolicy,
        record: Recorder | None = None,
        progress: Progress | None = None,
        curves: Curves | None = None,
    ) -> None:
        self._ranked: GroupStepCost = cost
        self._known: Known = {} if curves is None else curves  # type: ignore[assignment]
        super().__init__(requests, _GroupCost.of(cost, policy), limits, cast(Policy, policy), record, progress)

    def _clock_of(self, governor: Governor) -> ClockState:
        clock = _GroupClock(governor, self._cost, self._curves)
        clock.group = self
        return clock

    def forked(self, requests: Requests | None = None) -> RankedStation:
        other = super().forked(requests)
        assert isinstance(other, RankedStation)
        other._cost = _GroupCost.of(other._ranked, other._policy)
        if isinstance(other._clock, _GroupClock):
            other._clock.group = other
        return other

    def watch(self, log: RunLog | None) -> None:
        super().watch(log)
        if log is not None:
            log.ranks = [RunLog() for _ in self._policy.ranks]
            for one, rank in zip(log.ranks, self._policy.ranks, strict=True):
                one.watch(rank.policy, self._front, self._clock, self._limits)
            self._log = _RankLogs(log, self._policy)

    def result(self, requests: Requests) -> ServingRun:
        found = super().result(requests)
        if isinstance(self._log, _RankLogs):
            self._log.share_times()
        return found

    def curve(self, level: int) -> DecodeCurve:
        """Of what decodes now, at a level of the clock."""
        return GroupCurve(self._ranked, self._policy.decodes, level, self._known)  # type: ignore[return-value]

    def _curve(self, decodes: int, variant: int) -> DecodeCurve:
        return self.curve(0)
