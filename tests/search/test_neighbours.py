"""What stands beside the best plan is what running every plan would show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.search.fakes import every_plan, random_job, random_space

from gnomon.search import OBJECTIVES, Level, pareto, search
from gnomon.search.neighbours import (
    CONFIRMED,
    DEARER,
    alternatives,
    fastest,
    next_cheaper,
    other_shape,
    other_shape_by_rate,
    possible,
)

SEEDS = st.integers(0, 2**32 - 1)
LEVELS = (Level.SEARCH, Level.FULL)


@settings(max_examples=examples(100))
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
    assert not all(evaluator.evaluate(other.plan, job.rate_per_s, level).meets(job.goals) for level in LEVELS)
    if other.score is None:  # its bounds rule it out, and so do those of every other cheaper plan
        assert not any(possible(plan, evaluator.bounds(plan.family), job) for plan in cheaper)


@settings(max_examples=examples(100))
@given(seed=SEEDS, name=st.sampled_from(["cost", "latency", "energy"]))
def test_another_shape_meets_the_goals_and_is_no_better_than_the_best(seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    found = search(evaluator.queues, evaluator, OBJECTIVES[name], job)
    if found.best is None:
        return
    ran = (*found.scores, *alternatives(found, found.best, evaluator, job))
    other = other_shape(ran, found.best, OBJECTIVES[name], evaluator, job)
    if other is None:
        plans = [score.plan for score in ran if score.meets(job.goals)]
        others = [plan for plan in plans if plan.family.shape != found.best.plan.family.shape]
        full = [evaluator.evaluate(plan, job.rate_per_s, Level.SURE) for plan in others]
        assert len(full) > CONFIRMED or not any(score.surely_meets(job.goals) for score in full)
        return
    assert other == evaluator.evaluate(other.plan, job.rate_per_s, Level.SURE)
    assert other.surely_meets(job.goals)
    assert other.plan.family.shape != found.best.plan.family.shape
    other, best = (evaluator.evaluate(plan, job.rate_per_s, Level.SEARCH) for plan in (other.plan, found.best.plan))
    assert OBJECTIVES[name].key(other, job)[0] >= OBJECTIVES[name].key(best, job)[0]  # plans are ranked by samples


@settings(max_examples=examples(100))
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
        runs = [evaluator.evaluate(fewer, job.rate_per_s, level) for level in LEVELS] if fewer.replicas else []
        assert not runs or not all(run.meets(job.goals) for run in runs)


@settings(max_examples=50)
@given(seed=SEEDS)
def test_another_shape_by_rate_holds_and_is_not_above_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), replace(random_job(rng), rate_per_s=0.0)
    aim = OBJECTIVES["throughput"]
    found = search(evaluator.queues, evaluator, aim, job)
    other = other_shape_by_rate(found, found.best, evaluator, aim, job) if found.best else None
    if found.best is None or other is None:
        return
    assert other.surely_meets(job.goals)
    assert other.plan.family.shape != found.best.plan.family.shape
    assert other.rate_per_s <= found.best.rate_per_s


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
