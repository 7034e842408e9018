"""Plans beside the best one: the next cheaper, the second best, the nearest to its goals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gnomon.search.base import Bounds, Candidate, Evaluator, Family, Level, Score, Shape
from gnomon.search.best_first import FULL_TOLERANCE, Found, missed_by_bound
from gnomon.search.objectives import LEAST_SHARE, Job, Objective
from gnomon.search.rate import highest

IDLE_SHARE = 0.05
"""Share of what its bounds allow at which a plan is about as fast as it gets."""
OTHER_SHAPES = 3
"""Shapes of plan whose highest rates are found for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A plan that lost, and its score where it ran."""

    plan: Candidate
    score: Score | None


def next_cheaper(found: Found, best: Score, evaluator: Evaluator, job: Job) -> Neighbour | None:
    """Of the plans one price below the best, the one that comes nearest to the goals; None where all cost as much.

    Plans of that price that the search could leave out are run, one for each chip, degree and number format.
    """
    usd_h = max((_cheaper(family, best.plan.usd_h) for family in found.bounds), default=0.0)
    level = [plan for family in found.bounds for plan in _at_price(family, usd_h)] if usd_h else []
    known = {score.plan: score for score in found.scores}
    shapes: set[Shape] = set()
    scores: list[Score] = []
    for plan in level:
        bounds, family = found.bounds[plan.family], plan.family
        if plan in known:
            scores.append(known[plan])
        elif possible(plan, bounds, job) and family.shape not in shapes:
            scores.append(evaluator.evaluate(plan, job.rate_per_s, Level.SEARCH))
        shapes.add(family.shape)
    missed = [score for score in scores if not score.meets(job.goals)]
    if missed:
        score = to_the_end(nearest(missed, job), evaluator)
        return Neighbour(plan=score.plan, score=score)
    if not level:
        return None
    return Neighbour(plan=min(level, key=lambda plan: shortfall(plan, found.bounds[plan.family], job)), score=None)


def second_best(found: Found, best: Score, objective: Objective, job: Job) -> Neighbour | None:
    """The best of another shape: plans that differ from the best only in step budgets are no alternative."""
    others = [score for score in found.scores if score.meets(job.goals) and _shape(score.plan) != _shape(best.plan)]
    if not others:
        return None
    score = min(others, key=lambda score: objective.key(score, job))
    return Neighbour(plan=score.plan, score=score)


def second_rate(found: Found, best: Score, evaluator: Evaluator, objective: Objective, job: Job) -> Neighbour | None:
    """The same by the highest rate: of the other shapes with the highest bounds, some are run at rates below the
    best, which the search had no need to know."""
    plans: dict[tuple[Shape, int], Candidate] = {}
    for family in sorted(found.bounds, key=lambda family: objective.bound(family, found.bounds[family], job)):
        plan = Candidate(family=family, replicas=family.most)
        if _shape(plan) != _shape(best.plan) and missed_by_bound(found.bounds[family], job.goals) is None:
            plans.setdefault(_shape(plan), plan)
    rates: dict[Candidate, float] = {}
    for plan in list(plans.values())[:OTHER_SHAPES]:

        def holds(rate_per_s: float, plan: Candidate = plan) -> bool:
            return evaluator.evaluate(plan, rate_per_s, Level.SEARCH).meets(job.goals)

        beyond = min(best.rate_per_s, plan.replicas * found.bounds[plan.family].rate_per_s)
        least = max(job.rate_per_s, LEAST_SHARE * beyond)
        if least < beyond and holds(least):
            rates[plan] = highest(holds, least, beyond, FULL_TOLERANCE)
    if not rates:
        return None
    plan = max(rates, key=lambda plan: rates[plan])
    return Neighbour(plan=plan, score=evaluator.evaluate(plan, rates[plan], Level.SAMPLE))


def fastest(found: Found, evaluator: Evaluator, job: Job) -> list[Score]:
    """What money buys beyond the best: the first family of each chip, degree and number format with so many replicas
    that hardly two requests meet, or as many as there are chips for."""
    first: dict[Shape, Candidate] = {}
    for family in sorted(found.bounds, key=lambda family: family.order):
        plenty = math.ceil(job.rate_per_s / (IDLE_SHARE * found.bounds[family].rate_per_s))
        plan = Candidate(family=family, replicas=max(1, min(family.most, plenty)))
        first.setdefault(family.shape, plan)
    known = {score.plan for score in found.scores}
    plans = [plan for plan in first.values() if plan not in known and possible(plan, found.bounds[plan.family], job)]
    return [evaluator.evaluate(plan, job.rate_per_s, Level.SEARCH) for plan in plans]


def nearest(scores: Iterable[Score], job: Job) -> Score:
    """The score that misses its goals by the least share; a growing queue is further away than any miss by time."""
    return min(scores, key=lambda score: (score.grows, score.worst(job.goals)[1], score.plan.usd_h))


def to_the_end(score: Score, evaluator: Evaluator) -> Score:
    """The score of a whole sample, where the plan had been given up early."""
    return evaluator.evaluate(score.plan, score.rate_per_s, Level.SAMPLE) if score.partial else score


def possible(plan: Candidate, bounds: Bounds, job: Job) -> bool:
    return missed_by_bound(bounds, job.goals) is None and job.replicas(bounds) <= plan.replicas


def shortfall(plan: Candidate, bounds: Bounds, job: Job) -> float:
    """How far beyond its bounds a plan would have to go, as a share; 1 or less is within."""
    shares = [bounds.floors_s[goal.name] / goal.limit_s for goal in job.goals]
    return max([*shares, job.rate_per_s / (plan.replicas * bounds.rate_per_s)])


def _cheaper(family: Family, usd_h: float) -> float:
    """The highest price below another that some number of replicas has; 0 where there is none."""
    replicas = min(family.most, int(usd_h / family.usd_h) + 1)
    while replicas and replicas * family.usd_h >= usd_h:
        replicas -= 1
    return replicas * family.usd_h


def _at_price(family: Family, usd_h: float) -> list[Candidate]:
    replicas = round(usd_h / family.usd_h)
    fitting = 1 <= replicas <= family.most and replicas * family.usd_h == usd_h
    return [Candidate(family=family, replicas=replicas)] if fitting else []


def _shape(plan: Candidate) -> tuple[Shape, int]:
    return plan.family.shape, plan.replicas
