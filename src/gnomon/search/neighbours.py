"""Plans beside the best one: what is cheaper and why it fails, the best of another shape, the nearest to its goals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gnomon.search.base import Bounds, Candidate, Evaluator, Level, PlanFamily, Score, Shape
from gnomon.search.best_first import SearchResult, confirmed_rate
from gnomon.search.fates import missed_by_bound
from gnomon.search.objectives import LEAST_SHARE, Objective, SearchJob
from gnomon.search.rate import FULL_TOLERANCE, TOLERANCE, lowered, raised

DEARER = 1.25
"""Up to so many times the price of the best, every other shape of plan is run for comparison."""
IDLE_SHARE = 0.05
"""Share of what its bounds allow at which a plan is about as fast as it gets."""
CONFIRMED = 6
"""Plans that are run on the full load at most to find one that meets the goals there."""
OTHER_SHAPES = 3
"""Shapes of plan whose highest rates are found for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A plan that lost, and its score where it ran."""

    plan: Candidate
    score: Score | None


def next_cheaper(found: SearchResult, best: Score, evaluator: Evaluator, job: SearchJob) -> Neighbour | None:
    """The cheaper plan that comes nearest to the goals: of every shape the most replicas that cost less than the best.
    None where nothing costs less.

    Plans that the search could leave out are run, in the first settings of each shape.
    """
    plans: dict[Shape, Candidate] = {}
    for family in sorted(found.bounds, key=lambda family: family.order):
        replicas = _cheaper(family, best.plan.usd_h)
        if replicas:
            plans.setdefault(family.shape, Candidate(family=family, replicas=replicas))
    missed = [score for score in found.scores if score.plan.usd_h < best.plan.usd_h]
    known = {score.plan for score in missed}
    for plan in plans.values():
        if plan not in known and possible(plan, found.bounds[plan.family], job):
            score = evaluator.evaluate(plan, job.rate_per_s, Level.SEARCH)
            missed += [] if score.meets(job.goals) else [score]
    if missed:
        score = to_the_end(nearest(missed, job), evaluator)
        return Neighbour(plan=score.plan, score=score)
    if not plans:
        return None
    plan = min(plans.values(), key=lambda plan: shortfall(plan, found.bounds[plan.family], job))
    return Neighbour(plan=plan, score=None)


def other_shape(
    scores: Iterable[Score], best: Score, objective: Objective, evaluator: Evaluator, job: SearchJob
) -> Score | None:
    """Of plans that ran, the best with another chip, other degrees or another number format that meets the goals on the
    full load."""
    others = [score for score in scores if score.meets(job.goals) and score.plan.family.shape != best.plan.family.shape]
    ranked = sorted(others, key=lambda score: objective.key(score, job))[:CONFIRMED]
    held = (confirmed(score, evaluator, job) for score in ranked)
    return next((score for score in held if score is not None), None)


def confirmed(score: Score, evaluator: Evaluator, job: SearchJob) -> Score | None:
    """A plan that meets the goals on its sample, on the full load; None where it does not meet them there."""
    full = evaluator.evaluate(score.plan, score.rate_per_s, Level.SURE)
    return full if full.surely_meets(job.goals) else None


def alternatives(found: SearchResult, best: Score, evaluator: Evaluator, job: SearchJob) -> list[Score]:
    """Of other shapes, in the first settings of the space, the cheapest plans that meet the goals: every shape that
    costs hardly more than the best, and as many more as it takes to know the cheapest. What the search could leave out
    is run."""
    known = {score.plan: score for score in found.scores}
    kept: list[Score] = []
    limit = math.inf
    for family, usd_h in _by_least_price(found, best, job):
        if usd_h > limit:
            break
        least = job.replicas(found.bounds[family])
        most = min(family.most, int(family.within(limit))) if limit < math.inf else family.most

        def run(replicas: int, family: PlanFamily = family) -> Score:
            plan = Candidate(family=family, replicas=replicas)
            return known.get(plan) or evaluator.evaluate(plan, job.rate_per_s, Level.SEARCH)

        def meets(replicas: int, run: Callable[[int], Score] = run) -> bool:
            return run(replicas).meets(job.goals)

        replicas = raised(meets, least, most) if least <= most else None
        if replicas is not None:
            kept.append(run(replicas))
            limit = max(DEARER * best.plan.usd_h, min(score.plan.usd_h for score in kept))
    return kept


def _by_least_price(found: SearchResult, best: Score, job: SearchJob) -> list[tuple[PlanFamily, float]]:
    """The first family of every other shape that its bounds allow, with the least that a plan of it can cost."""
    first: dict[Shape, PlanFamily] = {}
    for family in sorted(found.bounds, key=lambda family: family.order):
        first.setdefault(family.shape, family)
    first.pop(best.plan.family.shape, None)
    priced = [
        (family, Candidate(family=family, replicas=job.replicas(found.bounds[family])).usd_h)
        for family in first.values()
        if missed_by_bound(found.bounds[family], job.goals) is None
        and job.replicas(found.bounds[family]) <= family.most
    ]
    return sorted(priced, key=lambda pair: (pair[1], pair[0].order))


def other_shape_by_rate(
    found: SearchResult, best: Score, evaluator: Evaluator, objective: Objective, job: SearchJob
) -> Score | None:
    """The best plan of another shape by its highest rate: of the shapes with the highest bounds, some are run at rates
    below the best; each only where it sustains more than those before it."""
    plans: dict[Shape, Candidate] = {}
    for family in sorted(found.bounds, key=lambda family: objective.bound(family, found.bounds[family], job)):
        plan = Candidate(family=family, replicas=family.most)
        if family.shape != best.plan.family.shape and missed_by_bound(found.bounds[family], job.goals) is None:
            plans.setdefault(family.shape, plan)
    second: tuple[Candidate, float] | None = None
    for plan in _other_kind(found, best, job) or list(plans.values())[:OTHER_SHAPES]:

        def room(rate_per_s: float, plan: Candidate = plan) -> float:
            return evaluator.evaluate(plan, rate_per_s, Level.SEARCH).room(job.goals)

        beyond = min(best.rate_per_s, plan.most_per_s(found.bounds[plan.family]))
        least = second[1] * (1 + TOLERANCE) if second else max(job.rate_per_s, LEAST_SHARE * beyond)
        if least >= beyond or (second and room(least) < 0):
            continue
        rate = lowered(room, beyond, least, FULL_TOLERANCE)
        second = (plan, rate) if rate is not None else second
    if second is None:
        return None
    plan, most = second
    rate = confirmed_rate(plan, most, LEAST_SHARE * most, evaluator, job)
    score = evaluator.evaluate(plan, rate, Level.FULL)
    return score if score.surely_meets(job.goals) else None


def _other_kind(found: SearchResult, best: Score, job: SearchJob) -> list[Candidate]:
    """Where plans with and without prefill replicas were searched, of the kind that the best is not, the one that held
    the highest rate, or else came nearest to the goals."""
    apart = best.plan.family.prefill is not None
    ran = [score for score in found.scores if (score.plan.family.prefill is None) == apart]
    held = [score for score in ran if score.meets(job.goals)]
    if held:
        return [max(held, key=lambda score: score.rate_per_s).plan]
    return [nearest(ran, job).plan] if ran else []


def fastest(found: SearchResult, evaluator: Evaluator, job: SearchJob) -> list[Score]:
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


def nearest(scores: Iterable[Score], job: SearchJob) -> Score:
    """The score that misses its goals by the least share; a growing queue is further away than any miss by time."""
    return min(scores, key=lambda score: (score.grows, score.worst(job.goals)[1], score.plan.usd_h))


def to_the_end(score: Score, evaluator: Evaluator) -> Score:
    """The score of the full load to its end, for a plan that was given up early or only ran on a sample."""
    return evaluator.evaluate(score.plan, score.rate_per_s, Level.TO_THE_END)


def possible(plan: Candidate, bounds: Bounds, job: SearchJob) -> bool:
    return missed_by_bound(bounds, job.goals) is None and job.replicas(bounds) <= plan.replicas


def shortfall(plan: Candidate, bounds: Bounds, job: SearchJob) -> float:
    """How far beyond its bounds a plan would have to go, as a share; 1 or less is within."""
    shares = [bounds.floors_s[goal.name] / goal.limit_s for goal in job.goals]
    return max([*shares, plan.load_share(job.rate_per_s, bounds)])


def _cheaper(family: PlanFamily, usd_h: float) -> int:
    """The most replicas that cost less than a price; 0 where one does not."""
    replicas = max(0, min(family.most, int(family.within(usd_h)) + 1))
    while replicas and Candidate(family=family, replicas=replicas).usd_h >= usd_h:
        replicas -= 1
    return replicas
