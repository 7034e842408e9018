"""What stands beside the best plan is what running every plan would show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.search.fakes import every_plan, random_job, random_space

from gnomon.search import OBJECTIVES, Level, pareto, search
from gnomon.search.neighbours import fastest, next_cheaper, second_best, second_rate

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=100)
@given(seed=SEEDS)
def test_next_cheaper_is_one_price_below_and_misses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    found = search(evaluator.queues, evaluator, OBJECTIVES["cost"], job)
    if found.best is None:
        return
    prices = {plan.usd_h for plan in every_plan(evaluator) if plan.usd_h < found.best.plan.usd_h}
    other = next_cheaper(found, found.best, evaluator, job)
    if other is None:
        assert not prices
        return
    assert other.plan.usd_h == max(prices)
    sample = evaluator.evaluate(other.plan, job.rate_per_s, Level.SEARCH)
    full = evaluator.evaluate(other.plan, job.rate_per_s, Level.FULL)
    assert not (sample.meets(job.goals) and full.meets(job.goals))


@settings(max_examples=50)
@given(seed=SEEDS)
def test_second_best_is_no_better_than_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    found = search(evaluator.queues, evaluator, OBJECTIVES["latency"], job)
    other = second_best(found, found.best, OBJECTIVES["latency"], job) if found.best else None
    if found.best is None or other is None or other.score is None:
        return
    best = evaluator.evaluate(found.best.plan, job.rate_per_s, Level.SEARCH)
    full = evaluator.evaluate(other.plan, job.rate_per_s, Level.FULL)
    assert other.plan != found.best.plan
    assert other.score.e2e_s >= best.e2e_s / 1.01 or not full.meets(job.goals)


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
    assert other.score.meets(job.goals)
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
