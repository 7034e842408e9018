"""What the search speaks of: families of plans, what is known of one before it runs, and what its run came to.

The search is handed an `Evaluator` and knows neither chips, engines nor simulators. Times in seconds,
rates in requests per second, prices in dollars per hour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gnomon.search.judge import SURE
from gnomon.spec import Goal

Key = tuple[float, ...]
"""Lower is better, first figure first."""
Shape = tuple[str | int, ...]
"""A chip, the degrees, and a number format; behind them the same of the prefill replicas, and how many there are, where
prompts have replicas of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFamily:
    """Plans that differ only in the number of equal replicas."""

    chip: str
    tp: int
    ep: int = 1
    """Expert-parallel degree: all ranks, or 1 where experts are sharded."""
    dp: int = 1
    """Data-parallel ranks of a replica, which share its experts."""
    pp: int = 1
    """Stages of a pipeline."""
    dtype: str
    dtype_rank: int
    """0 for the number format that is preferred where it costs no more, and so on."""
    settings: tuple[tuple[str, int], ...]
    usd_h: float
    """Price of one replica."""
    most: int
    """Replicas there are chips for."""
    order: int
    """Its place in the space; the last tie-breaker."""
    prefill: Candidate | None = None
    """The prefill replicas that prompts are computed by, where those counted here only decode."""
    alone: PlanFamily | None = None
    """The same replicas without prefill replicas ahead of them, where there are some."""

    def __hash__(self) -> int:
        return self.order

    @property
    def shape(self) -> Shape:
        own: Shape = self.chip, self.tp, self.ep, self.dtype
        if self.dp * self.pp > 1:
            own = (*own, self.dp, self.pp)
        return own if self.prefill is None else (*own, *self.prefill.family.shape, self.prefill.replicas)

    @property
    def chips(self) -> int:
        """Of one replica."""
        return self.tp * self.dp * self.pp

    @property
    def fixed_usd_h(self) -> float:
        """Price of what does not grow with the number of replicas."""
        return self.prefill.usd_h if self.prefill else 0.0

    def within(self, usd_h: float) -> float:
        """How many replicas a price pays for."""
        return (usd_h - self.fixed_usd_h) / self.usd_h


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One plan."""

    family: PlanFamily
    replicas: int

    @property
    def chips(self) -> int:
        prefill = self.family.prefill
        return self.replicas * self.family.chips + (prefill.chips if prefill else 0)

    @property
    def usd_h(self) -> float:
        return self.replicas * self.family.usd_h + self.family.fixed_usd_h

    def most_per_s(self, bounds: Bounds) -> float:
        """The most that all replicas together can keep up with."""
        return min(self.replicas * bounds.rate_per_s, bounds.most_per_s)

    def load_share(self, rate_per_s: float, bounds: Bounds) -> float:
        """A rate as a share of the most that all replicas together can keep up with."""
        return rate_per_s / self.most_per_s(bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What no schedule of a family's engine can beat.

    `floors_s` has the least value of each goal's figure, `e2e_s` the least mean time of a request,
    `rate_per_s` the highest request rate that one replica can sustain, `watts` the least power
    one replica draws. `most_per_s` and `fixed_watts` are those of the prefill replicas ahead of them.
    """

    floors_s: Mapping[str, float]
    e2e_s: float
    rate_per_s: float
    watts: float = 0.0
    most_per_s: float = math.inf
    fixed_watts: float = 0.0


class Level(StrEnum):
    """How much of the load a plan is judged on."""

    SEARCH = "search"
    """A sample, given up as soon as the goals are certainly missed."""
    VERDICT = "verdict"
    """The same sample where no more counts than whether the goals are met on it: given up at the first of several parts
    that tells."""
    TO_THE_END = "to the end"
    """As much as of the full load, to its end: for figures that are shown of a plan that may miss its goals."""
    FULL = "full"
    """All of it."""
    SURE = "sure"
    """All of it, and more where the verdict is not clear."""


LEAST_MISS = 1e-9
"""Room of a goal that is missed by nothing that can be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A plan under a load. `values_s` has the figure of each goal.

    `partial` says that the plan was given up early: its figures are then at least these.
    """

    plan: Candidate
    rate_per_s: float
    values_s: Mapping[str, float]
    grows: bool
    """Requests come in faster than they are served; see `gnomon.search.judge.backlog_grows`."""
    load_share: float
    """The rate as a share of the most that the bounds allow."""
    e2e_s: float
    wh_per_mtok: float
    partial: bool = False
    missed: bool = False
    """A part of the plan alone misses a goal, so that the rest was not run: figures are at least these."""
    settled: bool = True
    """Whether the run was long enough to have a steady part; no plan is good that never settled."""
    clearance: Mapping[str, float] = field(default_factory=dict)
    """Standard errors by which each goal is met; see `gnomon.search.judge.clearance`."""
    detail: Any = None

    def worst(self, goals: tuple[Goal, ...]) -> tuple[Goal | None, float]:
        """The goal nearest to its limit, or furthest beyond it, and the share of the limit used."""
        worst: tuple[Goal | None, float] = (None, 0.0)
        for goal in goals:
            share = share_of(self.values_s[goal.name], goal.limit_s)
            if worst[0] is None or share > worst[1]:
                worst = (goal, share)
        return worst

    def meets(self, goals: tuple[Goal, ...]) -> bool:
        return self.settled and not self.grows and not self.partial and self.worst(goals)[1] <= 1

    def surely_meets(self, goals: tuple[Goal, ...]) -> bool:
        """Whether a run of other requests would meet the goals too, with 95% confidence."""
        return self.meets(goals) and all(map(self.clearly, goals))

    def room(self, goals: tuple[Goal, ...]) -> float:
        """What is left of the goal nearest to its limit, as a logarithm: zero or more where the goals are met, below
        zero where they are missed, minus infinity where the run says no more than that."""
        if self.meets(goals):
            return max(0.0, min((self._left(goal) for goal in goals), default=math.inf))
        if self.grows or self.partial or not self.settled:
            return -math.inf
        return min(-LEAST_MISS, *(self._left(goal) for goal in goals))

    def sure_room(self, goals: tuple[Goal, ...]) -> float:
        """Room left after the statistical error, as a logarithm: zero or more where the goals are surely met."""
        beyond = [self._left(goal) - self._chance(goal) for goal in goals]
        if self.surely_meets(goals):
            return max(0.0, min(beyond, default=math.inf))
        if self.grows or self.partial or not self.settled:
            return -math.inf
        return min(-LEAST_MISS, *beyond)

    def _left(self, goal: Goal) -> float:
        share = share_of(self.values_s[goal.name], goal.limit_s)
        return -math.log(share) if share > 0 else math.inf

    def _chance(self, goal: Goal) -> float:
        """What the figure may be off by, as a logarithm; infinity where that is not known."""
        errors = self.clearance.get(goal.name, math.inf)
        if math.isinf(errors):
            return 0.0
        return SURE * self._left(goal) / errors if errors else math.inf

    def clearly(self, goal: Goal) -> bool:
        """Whether one goal is met by more than chance explains."""
        return self.clearance.get(goal.name, math.inf) >= SURE

    def nearly(self, goals: tuple[Goal, ...]) -> bool:
        """Whether the goals were missed by no more than chance explains."""
        return not self.missed and not self.meets(goals) and self.unclear(goals)

    def unclear(self, goals: tuple[Goal, ...]) -> bool:
        """Whether more requests could turn the verdict on some goal."""
        if self.grows or self.partial or self.missed or not self.settled:
            return False
        least = min((self.clearance.get(goal.name, math.inf) for goal in goals), default=math.inf)
        return abs(least) < SURE


def share_of(value_s: float, limit_s: float) -> float:
    """A figure nobody has (the time a token of requests with one token) meets its goal."""
    return 0.0 if math.isnan(value_s) else value_s / limit_s


class Evaluator(Protocol):
    """Answers for plans. Two laws are relied on: a plan with more replicas meets every goal that it meets
    with fewer, and a plan that holds a rate holds every lower one."""

    def fits(self, family: PlanFamily) -> bool:
        """Whether one replica has memory for the model and for the longest request."""

    def bounds(self, family: PlanFamily) -> Bounds:
        """Bounds of a family that fits."""

    def evaluate(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
        """The plan under the load at a rate of requests over all replicas."""
