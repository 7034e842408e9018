"""What would make a question feasible that no plan answers: chips, rates and goals, each run before it is proposed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gnomon.search.base import Bounds, Candidate, Evaluator, Level, Score
from gnomon.search.objectives import LEAST_SHARE, SearchJob
from gnomon.search.rate import FULL_TOLERANCE, fewest, highest, lowered, raised
from gnomon.spec import Goal

MOST_TIMES = 16
"""Of the chips there are: a larger fleet is not proposed."""
DIGITS = 2
"""Of a proposed goal: it is rounded up to so many."""
LOOSER, TRIES = 1.04, 6
"""By how much goals that chance could miss are loosened again, and how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Single changes with which the plan nearest to the goals would do; None where none was found."""

    replicas: int | None = None
    rate_per_s: float | None = None
    goals: tuple[Goal, ...] | None = None


def advice(
    plan: Candidate,
    bounds: Bounds,
    job: SearchJob,
    evaluator: Evaluator,
    relaxed: Callable[[tuple[Goal, ...]], Evaluator],
) -> Advice:
    """Changes that were run on the sample and on the full load; `relaxed` gives an evaluator for other goals."""
    return Advice(
        replicas=_more_replicas(plan, bounds, job, evaluator),
        rate_per_s=_lower_rate(plan, bounds, job, evaluator),
        goals=_looser_goals(plan, job, evaluator, relaxed),
    )


def holds(plan: Candidate, rate_per_s: float, goals: tuple[Goal, ...], evaluator: Evaluator) -> bool:
    """Whether a search for these goals would accept the plan: on its sample, then on the full load."""
    if not evaluator.evaluate(plan, rate_per_s, Level.SEARCH).meets(goals):
        return False
    return evaluator.evaluate(plan, rate_per_s, Level.SURE).surely_meets(goals)


def _more_replicas(plan: Candidate, bounds: Bounds, job: SearchJob, evaluator: Evaluator) -> int | None:
    most = MOST_TIMES * plan.replicas
    least = max(plan.replicas + 1, job.replicas(bounds))
    if any(bounds.floors_s[goal.name] > goal.limit_s for goal in job.goals) or least > most:
        return None

    def enough(replicas: int) -> bool:
        return evaluator.evaluate(replace(plan, replicas=replicas), job.rate_per_s, Level.SEARCH).meets(job.goals)

    if not enough(most):
        return None

    def held(replicas: int) -> bool:
        return holds(replace(plan, replicas=replicas), job.rate_per_s, job.goals, evaluator)

    return raised(held, fewest(enough, least, most), most)


def _lower_rate(plan: Candidate, bounds: Bounds, job: SearchJob, evaluator: Evaluator) -> float | None:
    beyond = min(job.rate_per_s, plan.most_per_s(bounds))
    least = LEAST_SHARE * beyond
    if any(bounds.floors_s[goal.name] > goal.limit_s for goal in job.goals):
        return None

    def room(rate_per_s: float) -> float:
        return evaluator.evaluate(plan, rate_per_s, Level.SEARCH).room(job.goals)

    if room(least) < 0:
        return None

    def sure_room(rate_per_s: float) -> float:
        return evaluator.evaluate(plan, rate_per_s, Level.FULL).sure_room(job.goals)

    rate = lowered(sure_room, highest(room, least, beyond), least, FULL_TOLERANCE)
    while rate is not None and rate > least:
        rate = rounded_down(rate)
        if holds(plan, rate, job.goals, evaluator):
            return rate
        rate *= 1 - FULL_TOLERANCE
    return None


def _looser_goals(
    plan: Candidate, job: SearchJob, evaluator: Evaluator, relaxed: Callable[[tuple[Goal, ...]], Evaluator]
) -> tuple[Goal, ...] | None:
    """Goals that the plan meets at the rate of the job; those that it meets already stay as they are."""
    score = evaluator.evaluate(plan, job.rate_per_s, Level.TO_THE_END)
    goals = job.goals
    for _ in range(TRIES):
        if score.grows or not score.settled:
            return None
        goals = tuple(_met(goal, score) for goal in goals)
        other = relaxed(goals)
        if holds(plan, job.rate_per_s, goals, other):
            return goals
        score = other.evaluate(plan, job.rate_per_s, Level.SURE)
        goals = tuple(
            goal if score.clearly(goal) else replace(goal, limit_s=rounded_up(LOOSER * goal.limit_s)) for goal in goals
        )
    return None


def _met(goal: Goal, score: Score) -> Goal:
    value = score.values_s[goal.name]
    return goal if math.isnan(value) or value <= goal.limit_s else replace(goal, limit_s=rounded_up(value))


def rounded_up(value: float, digits: int = DIGITS) -> float:
    """To so many significant digits, never below the value.

    >>> rounded_up(0.04871)
    0.049
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.{digits + 2}g}")


def rounded_down(value: float, digits: int = 3) -> float:
    """To so many significant digits, never above the value.

    >>> rounded_down(29.47)
    29.4
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.floor(value / unit + 1e-9) * unit:.{digits + 2}g}")
