"""The nearest plan is what running every plan would name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.search.fakes import FakeEvaluator, every_plan, random_job, random_space

from gnomon.search import OBJECTIVES, Candidate, Level, Score, SearchJob, search
from gnomon.search.nearest import nearest_plan
from gnomon.spec import Goal

SEEDS = st.integers(0, 2**32 - 1)


def nearest_of_all(evaluator: FakeEvaluator, job: SearchJob) -> float | None:
    """The smallest worst ratio of a figure to its goal over all plans that keep up; None where none does."""
    scores = [evaluator.evaluate(plan, job.rate_per_s, Level.TO_THE_END) for plan in every_plan(evaluator)]
    return min((ratio(score, job) for score in scores if not score.grows), default=None)


def ratio(score: Score, job: SearchJob) -> float:
    return max(score.values_s[goal.name] / goal.limit_s for goal in job.goals)


@pytest.mark.parametrize("name", ["cost", "latency", "energy"])
@pytest.mark.parametrize("tighter", [1, 4, 20])
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_no_plan_comes_nearer(seed: int, tighter: float, name: str) -> None:
    """Goals that some plans miss by their bounds, some when simulated, and some by a queue that grows."""
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    job = replace(job, goals=tuple(Goal(g.metric, g.statistic, g.limit_s / tighter) for g in job.goals))
    found = search(evaluator.queues, evaluator, OBJECTIVES[name], job)
    if found.best is not None or not found.bounds:
        return
    score, least = nearest_plan(found, evaluator, job), nearest_of_all(evaluator, job)
    assert score == evaluator.evaluate(score.plan, job.rate_per_s, Level.TO_THE_END)
    if least is not None:
        assert not score.grows
        assert ratio(score, job) == least
        return
    shares = [plan.load_share(job.rate_per_s, evaluator.bounds(plan.family)) for plan in every_plan(evaluator)]
    assert score.load_share == min(shares)


def test_of_equally_near_plans_the_cheapest() -> None:
    """Two families that differ in price alone."""
    rng = np.random.default_rng(3)
    family, queue = next((f, q) for f, q in random_space(rng).queues.items() if q.fits)
    cheap = replace(family, usd_h=0.5 * family.usd_h, order=family.order + 100)
    evaluator = FakeEvaluator({family: queue, cheap: queue})
    job = SearchJob(goals=(Goal("tpot", "p90", queue.token_s / 3),), rate_per_s=0.01, output_tokens=100.0)
    found = search(evaluator.queues, evaluator, OBJECTIVES["cost"], job)
    assert nearest_plan(found, evaluator, job).plan == Candidate(family=cheap, replicas=cheap.most)


def test_few_plans_run_where_bounds_say_which_is_nearest() -> None:
    rng = np.random.default_rng(5)
    evaluator, job = random_space(rng, families=200, most=500), random_job(rng)
    job = replace(job, goals=(Goal("tpot", "p90", 1e-4),))
    found = search(evaluator.queues, evaluator, OBJECTIVES["cost"], job)
    evaluator.calls.clear()
    nearest_plan(found, evaluator, job)
    assert len(evaluator.calls) < 0.2 * len(found.bounds)
