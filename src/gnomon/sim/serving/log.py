"""What a run's steps did, a row for each span of steps that the loop makes at once: for gaps between tokens and for
series over time.

Rows are numbers in one array and are turned into figures by array calls once the run is over (`gaps`, `series`).
Without a log the loop keeps nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.sim.serving.base import Decision, Policy
from gnomon.sim.serving.clock import ClockState
from gnomon.sim.serving.frontend import FrontEnd
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Floats

WIDTH = 12
"""Numbers in a row, in the order of `StepRows`."""
LEFT = 2 - WIDTH


@dataclass(frozen=True, slots=True, eq=False)
class StepRows:
    """Rows of a log, by column."""

    start_s: Floats
    end_s: Floats
    """Of all steps of the row together."""
    left_s: Floats
    """When the tokens of the last one leave the engine, had its host nothing else to launch."""
    last_s: Floats
    """The last step."""
    steps: Floats
    decodes: Floats
    """Of each step: sequences that decode; then prompt pieces, and tokens that leave."""
    prompts: Floats
    outputs: Floats
    preempted: Floats
    """Requests that wait to come back."""
    free_blocks: Floats
    """After the last step."""
    joules: Floats
    """Since the run began, of a chip, beyond its constant draw."""
    slowed_s: Floats
    """Since the run began: busy seconds, each times its slowdown."""


class Meter:
    """What `ClockState` counts, for a loop that counts it itself; nothing for chips whose clock never falls."""

    __slots__ = ("dynamic_j", "weighted_s")

    def __init__(self) -> None:
        self.dynamic_j = self.weighted_s = 0.0


class RunLog:
    """The rows of one replica's run."""

    __slots__ = (
        "_clock", "_common_s", "_front", "_newcomers", "_policy", "_preempted", "_rows", "before_s", "governed",
        "late_s", "limits", "others", "ranks", "through",
    )  # fmt: skip

    def __init__(self) -> None:
        self._rows = array("d")
        self.ranks: list[RunLog] = []
        """Logs of data-parallel ranks, where there are several: their decodes pause apart."""
        self.late_s: dict[int, float] = {}
        """By row: how much later its last tokens leave, as the host launches another step."""
        self.before_s: dict[int, float] = {}
        """By row: when the tokens before those of its first step left, where not with the row before it."""
        self.others: list[tuple[int, float, int]] = []
        """Tokens whose last one before did not come with those of all decodes: row, when that one left the engine, and
        1 for a decode of the row (its decodes paused when this one began), 0 for a request that was preempted."""
        self.through: Callable[[Floats], Floats] = np.asarray
        """When the client has tokens that leave the engine at some times; known once the run is over."""
        self._common_s: float | None = None
        """While the decodes pause: when their last tokens left."""
        self._newcomers: dict[int, float] = {}
        """The requests that began since, by when their last token left."""
        self._preempted: dict[int, float] = {}

    def watch(self, policy: Policy, front: FrontEnd, clock: ClockState | Meter | None, limits: ServingLimits) -> None:
        """A run of this scheduler begins."""
        self._policy, self._front, self.limits = policy, front, limits
        self._clock, self.governed = clock or Meter(), clock is not None

    def share_preempted(self, other: RunLog) -> None:
        """Requests that leave the batch of one log may come back in that of the other."""
        self._preempted = other._preempted

    def __len__(self) -> int:
        return len(self._rows) // WIDTH

    def rows(self, first: int = 0, last: int | None = None) -> StepRows:
        """Those between two places."""
        stop = len(self) if last is None else min(last, len(self))
        found = np.frombuffer(self._rows, np.float64).reshape(-1, WIDTH)[first:stop]
        return StepRows(*found.T)

    def decoded(self, start: float, end: float, steps: int, last_s: float) -> None:
        """So many steps of decodes alone ran; called before those that they end are taken out of the batch."""
        policy, clock = self._policy, self._clock
        if self._common_s is not None:
            self._resume()
        decodes = len(policy.decoding)
        self._rows.extend(
            (start, end, self._front.left_s, last_s, steps, decodes, 0, decodes)
            + (policy.away, policy.cache.free, clock.dynamic_j, clock.weighted_s)
        )

    def stepped(
        self, start: float, end: float, decision: Decision, applied: tuple[list[int], dict[int, int], int]
    ) -> None:
        """A step of a decision ran; `applied` is what `Policy.apply` made of it."""
        if decision.preempted:
            self.preempted(decision.preempted)
        policy, clock, decodes, (firsts, ended, outputs) = self._policy, self._clock, decision.decodes, applied
        if decodes:
            pauses = False
            if self._common_s is not None:
                self._resume()
        else:
            pauses = len(policy.decoding) > outputs - len(ended)
            if pauses and self._common_s is None:
                self._common_s = self._left_s
        self._rows.extend(
            (start, end, self._front.left_s, end - start, 1, decodes, len(decision.prompts), outputs)
            + (policy.away, policy.cache.free, clock.dynamic_j, clock.weighted_s)
        )
        if self._preempted and outputs > decodes:
            self._come_back(decision.prompts, firsts, ended)
        if pauses:
            self._newcomers |= {one: self._left_s for one in decision.prompts if one in policy.decoding}

    def preempted(self, requests: Sequence[int]) -> None:
        """These left the batch; their next token comes when they are back, if another one is to come."""
        common = self._left_s if self._common_s is None else self._common_s
        for request in requests:
            self._preempted.setdefault(request, self._newcomers.pop(request, common))

    def delayed(self, left_s: float) -> None:
        """The tokens of the last row leave only then."""
        undelayed = self._left_s
        self.late_s[len(self) - 1] = left_s - self._rows[LEFT]
        for request, last in self._newcomers.items():
            if last == undelayed:
                self._newcomers[request] = self._left_s

    @property
    def _left_s(self) -> float:
        """When the tokens of the last row leave the engine."""
        return self._rows[LEFT] + self.late_s.get(len(self) - 1, 0.0) if self._rows else 0.0

    def _resume(self) -> None:
        """The decodes go on after a pause, in the next row."""
        assert self._common_s is not None
        self.before_s[len(self)], self._common_s = self._common_s, None
        self.others += [(len(self), last, 1) for last in self._newcomers.values()]
        self._newcomers = {}

    def _come_back(self, prompts: Sequence[int], firsts: Sequence[int], ended: dict[int, int]) -> None:
        """Of the prompts that the last row ran, those that were preempted and make a token."""
        for request in prompts:
            if request in self._preempted and (request in self._policy.decoding or request in ended):
                last = self._preempted.pop(request)
                if request not in firsts:
                    self.others.append((len(self) - 1, last, 0))
