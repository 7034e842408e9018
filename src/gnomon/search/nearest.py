"""The plan nearest to goals that no plan meets."""

from __future__ import annotations

import math

from gnomon.search.base import Candidate, Evaluator, Level, Score
from gnomon.search.best_first import SearchResult
from gnomon.search.objectives import LEAST_SHARE, SearchJob

SAMPLED = 1.1
"""Figures of a sample and of the full load differ by chance: plans whose sample is up to so many times as far from the
goals as the nearest are run on the full load too."""


def nearest_plan(found: SearchResult, evaluator: Evaluator, job: SearchJob) -> Score:
    """The plan with the smallest worst ratio of a figure to its goal, over all plans that fit, on the full load to its
    end; of equal ones the cheapest.

    A plan that falls behind the load has no such figures: it is further away than any that keeps up, and of those the
    one with the smallest share of its bound is the nearest. All replicas there are chips for come nearest of a family
    (see `Evaluator`). They are run from the lowest bound on, which is the ratio of a request alone on a replica, or of
    the sample where the search ran it, until no bound is below the nearest.
    """
    best: Score | None = None
    reach = math.inf
    for ratio, margin, plan in _hopes(found, job):
        if ratio > reach * margin:
            continue
        score = evaluator.evaluate(plan, rate_of(plan, found, job), Level.TO_THE_END)
        if steady(score) and (best is None or _key(score, job) < _key(best, job)):
            best, reach = score, score.worst(job.goals)[1]
    if best is not None:
        return best
    plans = [Candidate(family=family, replicas=family.most) for family in found.bounds]
    plan = min(plans, key=lambda plan: (_load(plan, found, job), plan.usd_h, plan.family.order))
    return evaluator.evaluate(plan, rate_of(plan, found, job), Level.TO_THE_END)


def _hopes(found: SearchResult, job: SearchJob) -> list[tuple[float, float, Candidate]]:
    """Plans that may keep up with the load, from the lowest known ratio of a figure to its goal on, and how far beyond
    the nearest that ratio rules them out."""
    sampled = {score.plan: score for score in found.scores}
    hopes = []
    for family, bounds in found.bounds.items():
        plan = Candidate(family=family, replicas=family.most)
        floor = max((bounds.floors_s[goal.name] / goal.limit_s for goal in job.goals), default=0.0)
        sample = sampled.get(plan)
        if _load(plan, found, job) > 1 or (sample is not None and not (steady(sample) or sample.partial)):
            continue
        share = sample.worst(job.goals)[1] if sample is not None else 0.0
        hopes.append((floor, 1.0, plan) if floor >= share else (share, SAMPLED, plan))
    return sorted(hopes, key=lambda hope: (hope[0], hope[2].usd_h, hope[2].family.order))


def steady(score: Score) -> bool:
    """Whether a plan keeps up with its load, so that its figures are those of any longer run."""
    return score.settled and not score.grows


def rate_of(plan: Candidate, found: SearchResult, job: SearchJob) -> float:
    """The rate a plan is judged at: the load's, or the lowest that is tried, since goals that are missed there are
    missed at all rates."""
    return job.rate_per_s or LEAST_SHARE * plan.most_per_s(found.bounds[plan.family])


def _load(plan: Candidate, found: SearchResult, job: SearchJob) -> float:
    return plan.load_share(rate_of(plan, found, job), found.bounds[plan.family])


def _key(score: Score, job: SearchJob) -> tuple[float, ...]:
    return score.worst(job.goals)[1], score.plan.usd_h, score.plan.family.order
