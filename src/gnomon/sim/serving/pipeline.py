"""A replica whose layers are shared among the stages of a pipeline: as many batches in flight as there are stages.

The scheduler fills the pipeline before it waits for anything (`EngineCore.step_with_batch_queue` of vLLM): it is called
until there are as many batches as stages, empty ones where it finds nothing to run. Then it waits for the oldest batch,
and takes its outputs; meanwhile it sees no request. A batch enters a stage when it has left the one before, and the
batch before it has left this one; what is sent between stages is part of the stage that receives it. The hosts of all
stages prepare a batch as soon as it is scheduled, each one batch after the other.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import replace
from math import inf
from typing import NamedTuple, cast

from gnomon.cost.prompts import Work
from gnomon.cost.staged import stage_costs
from gnomon.cost.step import StepCost
from gnomon.sim.serving.base import Decision, Policy, Progress, Recorder
from gnomon.sim.serving.clock import ClockState
from gnomon.sim.serving.curve import Curves, DecodeCurve
from gnomon.sim.serving.log import Meter, RunLog
from gnomon.sim.serving.policies.staged import StagedPolicy
from gnomon.sim.serving.run import ServingRun
from gnomon.sim.serving.station import Station
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class _InFlight(NamedTuple):
    """A batch on its way."""

    number: int
    start_s: float
    end_s: float
    decision: Decision
    applied: tuple[list[int], dict[int, int], int]
    joules: float
    """Of the mean stage's chips, beyond their constant draw."""
    slowdown: float
    """By the clock, over its time on the stages."""


NOTHING = _InFlight(-1, -inf, -inf, Decision(0, 0, [], [], [], 0), ([], {}, 0), 0.0, 1.0)


class _Stretch(NamedTuple):
    """What a batch takes on one stage at full clock."""

    work: Work
    host_s: float


class StagedStation(Station):
    """The loop of one scheduler with several batches in flight. See `Station`."""

    __slots__ = (
        "_batches", "_clocks", "_first_outputs", "_flight", "_free_s", "_hosts_s", "_slowed_s", "_stages", "_tables",
        "_taken",
    )  # fmt: skip

    _policy: StagedPolicy  # type: ignore[assignment]

    def __init__(
        self,
        requests: Requests,
        cost: StepCost,
        limits: ServingLimits,
        policy: StagedPolicy,
        record: Recorder | None = None,
        progress: Progress | None = None,
        curves: Curves | None = None,
    ) -> None:
        super().__init__(requests, cost, replace(limits, lookahead=0), cast(Policy, policy), record, progress)
        self._stages = stage_costs(cost)
        self._tables: dict[tuple[int, int], DecodeCurve] = {} if curves is None else curves  # type: ignore[assignment]
        """Decode curves by stage and number of decodes."""
        self._flight: deque[_InFlight] = deque()
        self._batches = list(range(limits.stages))
        """Batches that are not in flight, the one that has waited longest first."""
        self._free_s = [-inf] * limits.stages
        """When each stage is through with its last batch."""
        self._hosts_s = [-inf] * limits.stages
        """When its host is."""
        self._clocks = [
            None if one.governor is None else ClockState(one.governor, cast(StepCost, one), {}) for one in self._stages
        ]
        """Of each stage's chips, where the clock is known."""
        self._slowed_s = 0.0
        """Busy seconds of the mean stage so far, each times its slowdown."""
        self._taken = Meter()
        """Of the batches whose outputs were taken."""
        self._first_outputs = True
        """Whether there were outputs since the engine was last idle."""

    def forked(self, requests: Requests | None = None) -> Station:
        other = super().forked(requests)
        assert isinstance(other, StagedStation)
        other._flight, other._batches, other._free_s = self._flight.copy(), self._batches[:], self._free_s[:]
        other._hosts_s = self._hosts_s[:]
        other._clocks, other._taken = [copy(clock) for clock in self._clocks], copy(self._taken)
        return other

    def watch(self, log: RunLog | None) -> None:
        self._log = log
        if log is not None:
            clock = None if None in self._clocks else self._taken
            log.watch(cast(Policy, self._policy), self._front, clock, self._limits)
            log.ranks = [RunLog() for _ in self._policy.batches]
            for one, batch in zip(log.ranks, self._policy.batches, strict=True):
                one.watch(batch, self._front, None, self._limits)
                one.share_preempted(log.ranks[0])

    def run(self, until: float = inf) -> None:
        queue = self._queue
        queue.visible_s[-1] = horizon = until + self._limits.request_s + self._limits.ingress_s
        while self._now < horizon:
            if self.feeds_back and self.ended:
                break
            ran, has_requests = False, self._has_requests()
            if has_requests:
                ran = self._schedule()
                if len(self._flight) < self._limits.stages:
                    self._now += 0.0 if ran else self._limits.empty_call_s
                    continue
            elif not self._flight:
                if queue.visible_s[queue.head] == horizon:
                    break
                self._now, self._cold = max(queue.visible_s[queue.head], self._now), True
                self._first_outputs = False
                continue
            self._take_outputs(self._flight.popleft())
            if not ran and self._has_requests():
                self._now += self._limits.empty_call_s
        if self._progress:
            self._progress(self._finished)

    def _has_requests(self) -> bool:
        policy, queue = self._policy, self._queue
        return bool(policy.count or policy.resumed) or queue.visible_s[queue.head] <= self._now

    def _schedule(self) -> bool:
        """Call the scheduler for the batches that are not in flight, until one of them runs; a call that finds nothing
        takes a place in the pipeline too, until it is its turn."""
        policy, now = self._policy, self._now
        for number in sorted(self._batches, key=lambda one: not policy.batches[one].count):
            decision = policy.decide_for(number, self._queue, now)
            if decision.decodes or decision.chunks:
                self._batches.remove(number)
                self._launch(number, decision)
                return True
            if decision.preempted and self._log is not None:
                self._log.ranks[number].preempted(decision.preempted)
        self._flight.append(NOTHING)
        return False

    def _launch(self, number: int, decision: Decision) -> None:
        at, start, busy_s, slowed_s, joules = self._now, 0.0, 0.0, 0.0, 0.0
        for stage, (work, host_s) in enumerate(self._stretches(decision)):
            begin = max(at, self._free_s[stage])
            if stage == 0:
                start = begin
                begin += self._limits.idle_start_s if self._cold else 0.0
            device_s, slowdown, drawn_j = self._clocked(stage, begin, work)
            self._hosts_s[stage] = ready = max(self._now, self._hosts_s[stage]) + host_s
            at = self._free_s[stage] = max(begin + device_s, ready)
            busy_s, slowed_s, joules = busy_s + device_s, slowed_s + slowdown * device_s, joules + drawn_j
        count = len(self._stages)
        self._busy_s += busy_s / count
        self._slowed_s += slowed_s / count
        self._cold = False
        policy = self._policy.batches[number]
        if self._record is not None:
            self._note(start, at, decision)
        applied = policy.apply(decision)
        policy.leaving = applied[1]
        self._peak_sequences = max(self._peak_sequences, self._policy.count)
        self._peak_tokens = max(self._peak_tokens, decision.tokens if decision.chunks else 0)
        self._flight.append(_InFlight(number, start, at, decision, applied, joules / count, slowed_s / busy_s))

    def _clocked(self, stage: int, begin_s: float, work: Work) -> tuple[float, float, float]:
        """Seconds of a batch on a stage, how slow its clock is, and joules beyond the constant draw."""
        clock = self._clocks[stage]
        if clock is None:
            return work[0], 1.0, work[2]
        before = clock.dynamic_j
        seconds = clock.mixed(begin_s, work)
        return seconds, clock.slowdown, clock.dynamic_j - before

    def _stretches(self, decision: Decision) -> list[_Stretch]:
        """Of each stage; an engine that was idle launches more slowly until it has outputs."""
        decodes, context, chunks, *_ = decision
        slower, found = 1.0 if self._first_outputs else self._limits.idle_launch, []
        for number, cost in enumerate(self._stages):
            if chunks:
                launch = cost.launch(decision.tokens, decodes + len(chunks), len(chunks))
                found.append(_Stretch(cost.mixed_work(decodes, context, chunks), launch * slower))
                continue
            curve = self._tables.get((number, decodes))
            if curve is None:
                curve = self._tables[number, decodes] = DecodeCurve(cost.decode_curve(decodes), decodes)
            seconds, clocked = curve.one(context), 0.0
            if self._clocks[number] is not None:
                clocked = curve.demand(context)[0]
            found.append(_Stretch((seconds, clocked * seconds, curve.joules(context, 1)), cost.host_s(decodes)))
        return found

    def _take_outputs(self, batch: _InFlight) -> None:
        if batch.number < 0:
            return
        firsts, ended, outputs = batch.applied
        self._now = max(self._now, batch.end_s)
        left = self._front.leave(self._now, outputs)
        self._taken.dynamic_j += batch.joules
        self._first_outputs = True
        for request in firsts:
            self._first[request] = left
        if self._log is not None:
            start = max(batch.start_s, self._end)  # spans of a log follow one another
            self._taken.weighted_s += batch.slowdown * (batch.end_s - start)
            self._log.stepped(start, batch.end_s, batch.decision, batch.applied)
            self._log.ranks[batch.number].stepped(batch.start_s, batch.end_s, batch.decision, batch.applied)
        self._end = batch.end_s
        if ended:
            self._end_requests(ended, left)
            self._settle()
        self._policy.batches[batch.number].release()
        self._batches.append(batch.number)

    def result(self, requests: Requests) -> ServingRun:
        found = super().result(requests)
        for one in () if self._log is None else self._log.ranks:
            one.through = self._log.through if self._log else one.through
        drawn_j = self._taken.dynamic_j
        return replace(found, dynamic_j=drawn_j, clock_slowdown=self._slowed_s / self._busy_s if self._busy_s else 1.0)
