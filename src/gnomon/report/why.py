"""Why a plan lost, in words and with the amount."""

from __future__ import annotations

from gnomon.search.base import Bounds, Candidate, Score
from gnomon.search.objectives import Job
from gnomon.spec import Goal
from gnomon.units import format_duration, format_rate


def why_missed(score: Score, job: Job) -> str:
    """What a plan that ran missed: `misses tpot_p90 by 6 ms (46 ms, the goal is 40 ms)`."""
    goal, share = score.worst(job.goals)
    if score.grows or goal is None or share <= 1:
        return f"falls behind a load of {format_rate(score.rate_per_s)}: its queue grows without end"
    value = score.values_s[goal.name]
    by, took, limit = (format_duration(seconds) for seconds in (value - goal.limit_s, value, goal.limit_s))
    least = "at least " if score.partial else ""
    return f"misses {goal.name} by {least}{by} ({took}, the goal is {limit})"


def why_bounded(plan: Candidate, bounds: Bounds, job: Job) -> str:
    """What a plan that never ran could not do however it was scheduled; empty where nothing speaks against it."""
    goal = furthest(bounds, job.goals)
    if goal is not None and bounds.floors_s[goal.name] > goal.limit_s:
        floor, limit = format_duration(bounds.floors_s[goal.name]), format_duration(goal.limit_s)
        return f"cannot meet {goal.name}: {floor} for a request on its own, the goal is {limit}"
    most = plan.replicas * bounds.rate_per_s
    if most < job.rate_per_s:
        return f"cannot keep up: at most {format_rate(most)} of {format_rate(job.rate_per_s)}"
    return ""


def furthest(bounds: Bounds, goals: tuple[Goal, ...]) -> Goal | None:
    """The goal whose floor is nearest to its limit, or furthest beyond it."""
    return max(goals, key=lambda goal: bounds.floors_s[goal.name] / goal.limit_s, default=None)
