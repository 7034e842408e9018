"""What stands beside the best plan is what running every plan would show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.search.fakes import every_plan, random_job, random_space

from gnomon.search import OBJECTIVES, Candidate, Level, pareto, search
from gnomon.search.neighbours import (
    CONFIRMED,
    DEARER,
    alternatives,
    fastest,
    next_cheaper,
    possible,
    second_best,
    second_rate,
)

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=100)
@given(seed=SEEDS)
def test_next_cheaper_misses_and_no_cheaper_plan_comes_nearer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    found = search(evaluator.queues, evaluator, OBJECTIVES["cost"], job)
    if found.best is None:
        return
    cheaper = [plan for plan in every_plan(evaluator) if plan.usd_h < found.best.plan.usd_h]
    other = next_cheaper(found, found.best, evaluator, job)
    if other is None:
        assert not cheaper
        return
    assert other.plan in cheaper
    levels = (Level.SEARCH, Level.FULL)
    assert not all(evaluator.evaluate(other.plan, job.rate_per_s, level).meets(job.goals) for level in levels)
    if other.score is None:  # its bounds rule it out, and so do those of every other cheaper plan
        assert not any(possible(plan, evaluator.bounds(plan.family), job) for plan in cheaper)


@settings(max_examples=100)
@given(seed=SEEDS, name=st.sampled_from(["cost", "latency", "energy"]))
def test_the_runner_up_meets_the_goals_and_is_no_better_than_the_best(seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    found = search(evaluator.queues, evaluator, OBJECTIVES[name], job)
    if found.best is None:
        return
    ran = (*found.scores, *alternatives(found, found.best, evaluator, job))
    other = second_best(ran, found.best, OBJECTIVES[name], evaluator, job)
    met = [score for score in ran if score.meets(job.goals) and score.plan != found.best.plan]
    if other is None:
        others = [score.plan for score in met if shape_of(score.plan) != shape_of(found.best.plan)]
        full = [evaluator.evaluate(plan, job.rate_per_s, Level.SURE) for plan in others]
        assert len(full) > CONFIRMED or not any(score.surely_meets(job.goals) for score in full)
        return
    assert other.score is not None
    assert other.score == evaluator.evaluate(other.plan, job.rate_per_s, Level.SURE)
    assert other.score.surely_meets(job.goals)
    assert shape_of(other.plan) != shape_of(found.best.plan)
    aim = OBJECTIVES[name]
    assert aim.key(other.score, job)[0] >= aim.key(found.best, job)[0]


@settings(max_examples=100)
@given(seed=SEEDS)
def test_alternatives_are_the_cheapest_of_their_shape_that_meet_the_goals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    found = search(evaluator.queues, evaluator, OBJECTIVES["cost"], job)
    if found.best is None:
        return
    scores = alternatives(found, found.best, evaluator, job)
    prices = [score.plan.usd_h for score in scores]
    assert all(price <= max(DEARER * found.best.plan.usd_h, prices[0]) for price in prices)
    for score in scores:
        assert score.meets(job.goals)
        assert score.plan.family.shape != found.best.plan.family.shape
        fewer = replace(score.plan, replicas=score.plan.replicas - 1)
        assert not fewer.replicas or not evaluator.evaluate(fewer, job.rate_per_s, Level.SEARCH).meets(job.goals)


def shape_of(plan: Candidate) -> tuple[object, int]:
    return plan.family.shape, plan.replicas


@settings(max_examples=50)
@given(seed=SEEDS)
def test_second_rate_holds_and_is_not_above_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), replace(random_job(rng), rate_per_s=0.0)
    aim = OBJECTIVES["throughput"]
    found = search(evaluator.queues, evaluator, aim, job)
    other = second_rate(found, found.best, evaluator, aim, job) if found.best else None
    if found.best is None or other is None or other.score is None:
        return
    assert other.score.surely_meets(job.goals)
    assert other.score.rate_per_s <= found.best.rate_per_s


def test_the_fastest_of_every_shape_runs_once() -> None:
    rng = np.random.default_rng(7)
    evaluator, job = random_space(rng), replace(random_job(rng), rate_per_s=0.5)
    found = search(evaluator.queues, evaluator, OBJECTIVES["cost"], job)
    scores = fastest(found, evaluator, job)
    plans = [score.plan for score in scores]
    assert plans
    assert all(1 <= plan.replicas <= plan.family.most for plan in plans)
    assert not {score.plan for score in found.scores} & set(plans)
    assert len({(p.family.chip, p.family.tp, p.family.dtype) for p in plans}) == len(plans)


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=40))
def test_pareto_keeps_exactly_the_unbeaten(points: list[tuple[int, ...]]) -> None:
    kept = pareto(points, lambda point: tuple(map(float, point)))

    def beaten(point: tuple[int, ...]) -> bool:
        return any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in points)

    assert set(kept) == {point for point in points if not beaten(point)}
    assert len(kept) == len(set(kept))
    assert kept == sorted(kept)
