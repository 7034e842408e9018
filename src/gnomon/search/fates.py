"""What became of every plan of a search: each that is not the best has one reason, and the counts add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gnomon.search.base import Bounds, Candidate, PlanFamily, Score
from gnomon.search.ledger import Ledger
from gnomon.spec import Goal

NO_MEMORY = "does not fit in memory"
TOO_SLOW = "cannot keep up with the load"
BEATEN = "cannot beat the best"
FEWER = "has fewer replicas than one that misses"
GROWING = "queue grows without end when simulated"
UNSETTLED = "does not settle in the longest run when simulated"
UNSURE = "does not meet the goals with 95% confidence when simulated"
MISSED_IN_FULL = "misses the goals on the full load when simulated"
SUSTAINS_LESS = "sustains less than the best when simulated"
OUTDONE = "meets the goals when simulated, and the best is better"


def missed_by_bound(bounds: Bounds, goals: tuple[Goal, ...]) -> Goal | None:
    """The goal that a request misses even when it has a replica to itself."""
    beyond = [goal for goal in goals if bounds.floors_s[goal.name] > goal.limit_s]
    return max(beyond, key=lambda goal: bounds.floors_s[goal.name] / goal.limit_s, default=None)


def fates(
    space: Iterable[PlanFamily], bounds: dict[PlanFamily, Bounds], ledger: Ledger, best: Score | None
) -> dict[str, int]:
    """How many plans were lost to what, most first; with the best they add up to all."""
    job = ledger.job
    judged = {score.plan: score for score in ledger.judged()}
    simulated = {plan: _fate(plan, judged.get(plan) or ledger.full.get(plan), ledger) for plan in ledger.ran}
    by_family: dict[PlanFamily, dict[int, str]] = {}
    for plan, fate in simulated.items():
        by_family.setdefault(plan.family, {})[plan.replicas] = fate
    counts: Counter[str] = Counter()
    for family in space:
        if family not in bounds:
            counts[NO_MEMORY] += family.most
        elif (goal := missed_by_bound(bounds[family], job.goals)) is not None:
            counts[f"cannot meet {goal.name}"] += family.most
        else:
            few = min(family.most, job.replicas(bounds[family]) - 1)
            counts[TOO_SLOW] += few
            known = by_family.get(family, {})
            missing = max((n for n, fate in known.items() if fate not in (OUTDONE, SUSTAINS_LESS)), default=few)
            fewer = missing - few - sum(n <= missing for n in known)
            counts[FEWER] += fewer
            counts[BEATEN] += family.most - few - fewer - len(known)
    counts.update(fate for plan, fate in simulated.items() if best is None or plan != best.plan)
    most_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {name: count for name, count in most_first if count}


def _fate(plan: Candidate, score: Score | None, ledger: Ledger) -> str:
    """Why a plan that ran is not the best. Without a score only its sample met the goals."""
    job = ledger.job
    if score is None:
        return MISSED_IN_FULL
    if score.surely_meets(job.goals) or (score.meets(job.goals) and plan not in ledger.full):
        return OUTDONE
    return SUSTAINS_LESS if score.rate_per_s > job.rate_per_s else miss_name(score, job.goals)


def miss_name(score: Score, goals: tuple[Goal, ...]) -> str:
    """Why a plan that ran is out."""
    goal, share = score.worst(goals)
    if goal is not None and share > 1:
        return f"misses {goal.name} when simulated"
    if score.grows:
        return GROWING
    return UNSURE if score.settled else UNSETTLED
