"""Why a plan lost, with the amounts."""

from __future__ import annotations

import math

from gnomon.search.base import Bounds, Candidate, Score, share_of
from gnomon.search.objectives import SearchJob
from gnomon.spec import Goal
from gnomon.units import format_duration, format_rate

WORTH_NAMING = 0.1
"""Share by which a time must be lower to be named as bought."""


def why_missed(score: Score, job: SearchJob) -> str:
    """What a plan that ran missed: `misses tpot_p90 by 6 ms (46 ms, the goal is 40 ms)`."""
    goal, share = score.worst(job.goals)
    if score.grows or goal is None:
        return f"falls behind a load of {format_rate(score.rate_per_s)}: its queue grows without bound"
    if not score.settled:
        return f"did not settle at {format_rate(score.rate_per_s)} within {score.detail.requests:,} requests"
    if share <= 1:
        unsure = min(job.goals, key=lambda goal: score.clearance.get(goal.name, math.inf))
        value, limit = format_duration(score.values_s[unsure.name]), format_duration(unsure.limit_s)
        return f"does not meet {unsure.name} with 95% confidence ({value}, the goal is {limit})"
    missed = sorted(job.goals, key=lambda goal: -share_of(score.values_s[goal.name], goal.limit_s))
    return "misses " + " and ".join(_miss(score, goal) for goal in missed if score.values_s[goal.name] > goal.limit_s)


def _miss(score: Score, goal: Goal) -> str:
    value = score.values_s[goal.name]
    by, took, limit = (format_duration(seconds) for seconds in (value - goal.limit_s, value, goal.limit_s))
    least = "at least " if score.partial else ""
    return f"{goal.name} by {least}{by} ({took}, the goal is {limit})"


def why_bounded(plan: Candidate, bounds: Bounds, job: SearchJob) -> str:
    """The bound that rules out a plan that was not simulated; empty where none does."""
    goal = furthest(bounds, job.goals)
    if goal is not None and bounds.floors_s[goal.name] > goal.limit_s:
        floor, limit = format_duration(bounds.floors_s[goal.name]), format_duration(goal.limit_s)
        return f"cannot meet {goal.name}: {floor} for a request alone on a replica, the goal is {limit}"
    most = plan.most_per_s(bounds)
    if most < job.rate_per_s:
        return f"cannot keep up: at most {format_rate(most)} of {format_rate(job.rate_per_s)}"
    return ""


def why_second(objective: str, best: Score, other: Score) -> str:
    """How the runner-up differs from the best: `8% more expensive, 24% lower TPOT`."""
    if objective == "throughput":
        return f"sustains {format_rate(other.rate_per_s)}, the best {format_rate(best.rate_per_s)}"
    if objective == "energy":
        return f"takes {other.wh_per_mtok:,.0f} Wh/Mtok, the best {best.wh_per_mtok:,.0f}"
    changes = [_compared(other.plan.usd_h, best.plan.usd_h, "more expensive", "cheaper")]
    for metric in ("ttft_s", "tpot_s"):
        name = metric.removesuffix("_s").upper()
        mine, theirs = (getattr(score.detail, metric)["p90"] for score in (other, best))
        changes.append(_compared(mine, theirs, f"higher {name}", f"lower {name}"))
    return ", ".join(filter(None, changes)) or "equal in price, TTFT and TPOT"


def _compared(value: float, other: float, more: str, less: str) -> str:
    """`8% more expensive`; nothing where the two differ by less than a percent, or one is unknown."""
    share = value / other - 1 if other > 0 else 0.0
    if math.isnan(share) or abs(share) < 0.01:
        return ""
    return f"{abs(share):.0%} {more if share > 0 else less}"


def what_it_buys(best: Score, other: Score) -> list[str]:
    """What a plan of nearly the same price does better than the best."""
    bought = []
    for metric in ("ttft_s", "tpot_s"):
        mine, theirs = (getattr(score.detail, metric)["p90"] for score in (other, best))
        if mine < (1 - WORTH_NAMING) * theirs:
            name = metric.removesuffix("_s").upper()
            bought.append(f"{name} p90 {format_duration(mine)} instead of {format_duration(theirs)}")
    if other.plan.family.dtype_rank < best.plan.family.dtype_rank:
        bought.append(f"weights in {other.plan.family.dtype}")
    if other.plan.chips < best.plan.chips:
        chips = "1 chip" if other.plan.chips == 1 else f"{other.plan.chips} chips"
        bought.append(f"{chips} instead of {best.plan.chips}")
    return bought


def furthest(bounds: Bounds, goals: tuple[Goal, ...]) -> Goal | None:
    """The goal whose floor is nearest to its limit, or furthest beyond it."""
    return max(goals, key=lambda goal: bounds.floors_s[goal.name] / goal.limit_s, default=None)
