"""The search finds what running every plan would find."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.search.fakes import FakeEvaluator, Queue, every_plan, exhaustive, random_job, random_space

from gnomon.search import OBJECTIVES, Candidate, Level, PlanFamily, Score, SearchJob, highest_rate, search
from gnomon.search.best_first import FULL_TOLERANCE
from gnomon.search.fates import NO_MEMORY, OUTDONE
from gnomon.search.rate import TOLERANCE
from gnomon.spec import Goal

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("name", ["cost", "latency", "energy"])
@settings(max_examples=examples(150), deadline=None)
@given(seed=SEEDS)
def test_same_best_as_running_all(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    found = search(evaluator.queues, evaluator, OBJECTIVES[name], job)
    expected = exhaustive(evaluator, OBJECTIVES[name], job)
    assert (found.best.plan if found.best else None) == expected


@pytest.mark.parametrize("name", ["cost", "latency", "energy"])
@settings(max_examples=examples(150), deadline=None)
@given(seed=SEEDS)
def test_the_runner_up_is_the_best_of_all_others(name: str, seed: int) -> None:
    """Whatever it differs in from the best: budgets, replicas, degrees or chips, and however much more it costs."""
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    found = search(evaluator.queues, evaluator, OBJECTIVES[name], job)
    if found.best is None:
        assert found.runner_up is None
        return
    expected = exhaustive(evaluator, OBJECTIVES[name], job, but=found.best.plan)
    assert (found.runner_up.plan if found.runner_up else None) == expected
    assert found.runner_up is None or found.runner_up.surely_meets(job.goals)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_the_runner_up_by_rate_is_the_best_of_all_others(seed: int) -> None:
    """It is what a search finds that never knew the best plan's family."""
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng, families=6, most=4), replace(random_job(rng), rate_per_s=0.0)
    found = search(evaluator.queues, evaluator, OBJECTIVES["throughput"], job)
    if found.best is None:
        return
    others = FakeEvaluator({f: queue for f, queue in evaluator.queues.items() if f != found.best.plan.family})
    expected = search(others.queues, others, OBJECTIVES["throughput"], job).best
    if expected is None or found.runner_up is None:
        assert expected is found.runner_up is None
        return
    assert found.runner_up.surely_meets(job.goals)
    assert found.runner_up.rate_per_s <= found.best.rate_per_s
    assert found.runner_up.rate_per_s >= expected.rate_per_s * (1 - TOLERANCE) * (1 - 2 * FULL_TOLERANCE)


@pytest.mark.heavy
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_highest_rate_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng, families=6, most=4), replace(random_job(rng), rate_per_s=0.0)
    found = search(evaluator.queues, evaluator, OBJECTIVES["throughput"], job)

    def holds(plan, rate):  # type: ignore[no-untyped-def]
        return all(evaluator.evaluate(plan, rate, level).meets(job.goals) for level in (Level.SEARCH, Level.FULL))

    grid = np.geomspace(0.02, 60, 400)
    most = max((rate for plan in every_plan(evaluator) for rate in grid if holds(plan, rate)), default=0.0)
    if found.best is None:
        assert most < 0.1
        return
    assert holds(found.best.plan, found.best.rate_per_s)
    # On the full load a rate is lowered in steps of a few percent.
    assert found.best.rate_per_s >= most * (1 - TOLERANCE) ** 2 * 0.93


@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS)
def test_looser_goals_never_cost_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    looser = replace(job, goals=tuple(Goal(g.metric, g.statistic, g.limit_s * 1.3) for g in job.goals))
    tight, loose = (search(evaluator.queues, evaluator, OBJECTIVES["cost"], each).best for each in (job, looser))
    assert tight is None or (loose is not None and loose.plan.usd_h <= tight.plan.usd_h)


@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS)
def test_bigger_fleet_never_costs_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    larger = FakeEvaluator({replace(f, most=f.most + 2): queue for f, queue in evaluator.queues.items()})
    small, large = (search(each.queues, each, OBJECTIVES["cost"], job).best for each in (evaluator, larger))
    assert small is None or (large is not None and large.plan.usd_h <= small.plan.usd_h)


@pytest.mark.parametrize("name", OBJECTIVES)
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_every_plan_has_one_fate(name: str, seed: int) -> None:
    """The best plan, and one reason for every other: those that ran, those that do not fit, those that were pruned."""
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    job = replace(job, rate_per_s=0.0) if name == "throughput" and seed % 2 else job
    found = search(evaluator.queues, evaluator, OBJECTIVES[name], job)
    chosen = found.best is not None
    assert sum(found.rejected.values()) + chosen == found.considered == sum(f.most for f in evaluator.queues)
    assert found.considered - found.fit == found.rejected.get(NO_MEMORY, 0)
    ran = sum(count for reason, count in found.rejected.items() if "when simulated" in reason)
    assert ran + chosen == found.simulated == len({plan for plan, _, _ in evaluator.calls}) <= found.fit
    assert all(count > 0 for count in found.rejected.values())
    if not chosen:
        assert OUTDONE not in found.rejected


def test_runs_few_of_many_plans() -> None:
    rng = np.random.default_rng(5)
    evaluator, job = random_space(rng, families=200, most=500), replace(random_job(rng), rate_per_s=60.0)
    found = search(evaluator.queues, evaluator, OBJECTIVES["cost"], job)
    assert found.best is not None
    assert found.considered > 40_000
    assert len(evaluator.calls) < 400


@pytest.mark.parametrize("seed", range(20))
def test_the_highest_rate_of_families_that_differ_little_takes_few_runs(seed: int) -> None:
    """Samples promise more than the full load keeps: that is no reason to run all others again at every rate."""
    rng = np.random.default_rng(seed)
    alike = {
        family: replace(QUEUE, token_s=0.02 * float(rng.uniform(1, 1.1)), full_factor=1.1, looseness=1.5)
        for family in random_space(rng, families=40, most=1).queues
    }
    evaluator, job = FakeEvaluator(alike), replace(JOB, rate_per_s=0.0)
    assert search(evaluator.queues, evaluator, OBJECTIVES["throughput"], job).best is not None
    assert len(set(evaluator.calls)) <= 4 * len(alike)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS)
def test_highest_rate_of_the_best_is_its_border(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator, job = random_space(rng), random_job(rng)
    best = search(evaluator.queues, evaluator, OBJECTIVES["cost"], job).best
    if best is None:
        return
    most = highest_rate(best, evaluator, evaluator.bounds(best.plan.family), job)
    assert most >= job.rate_per_s

    def holds(rate: float) -> bool:
        return evaluator.evaluate(best.plan, rate, Level.FULL).surely_meets(job.goals)

    assert most == job.rate_per_s or holds(most)
    assert not holds(most * (1 + 1.5 * FULL_TOLERANCE))


def test_progress_ends_at_all_plans() -> None:
    rng = np.random.default_rng(2)
    evaluator, job = random_space(rng), replace(random_job(rng), rate_per_s=0.5)
    told: list[tuple[int, int]] = []
    found = search(
        evaluator.queues, evaluator, OBJECTIVES["cost"], job, progress=lambda done, total: told.append((done, total))
    )
    assert found.best is not None
    assert told[-1] == (found.considered, found.considered)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def two_of_one_price(first: Queue, second: Queue) -> FakeEvaluator:
    """The first is what wins a tie: in the preferred format, and first in the space."""
    common = {"chip": "chip", "tp": 1, "settings": (), "usd_h": 2.0, "most": 1}
    families = [
        PlanFamily(dtype=dtype, dtype_rank=rank, order=rank, **common) for rank, dtype in enumerate(("bf16", "fp8"))
    ]
    return FakeEvaluator(dict(zip(families, (first, second), strict=True)))


QUEUE = Queue(first_s=0.1, token_s=0.04, capacity=10.0, watts=300.0, looseness=1.0, full_factor=1.0, fits=True)
JOB = SearchJob(goals=(Goal("tpot", "p90", 0.05),), rate_per_s=0.1, output_tokens=100.0)


def test_of_one_price_a_plan_that_the_full_load_brings_to_the_brink_gives_way() -> None:
    """On the sample both leave room, and the preferred format wins; on the full load only the other does."""
    tight = two_of_one_price(replace(QUEUE, full_factor=1.2), replace(QUEUE, token_s=0.03))
    best = search(tight.queues, tight, OBJECTIVES["cost"], JOB).best
    assert best is not None
    assert best.plan.family.dtype == "fp8"
    both = two_of_one_price(replace(QUEUE, full_factor=1.2), replace(QUEUE, full_factor=1.2))
    best = search(both.queues, both, OBJECTIVES["cost"], JOB).best
    assert best is not None
    assert best.plan.family.dtype == "bf16"


@dataclass
class NoisyEvaluator(FakeEvaluator):
    """The sample of one family misses by chance; only a longer run can tell."""

    unlucky: PlanFamily | None = None

    def evaluate(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
        score = super().evaluate(plan, rate_per_s, level)
        if plan.family != self.unlucky or level is Level.SURE:
            return score
        return replace(score, values_s=dict.fromkeys(score.values_s, 1.02 * JOB.goals[0].limit_s), clearance=NEAR)


NEAR = {"tpot_p90": -0.8}


def test_a_cheaper_plan_that_misses_by_chance_is_run_in_full() -> None:
    cheap, dear = (
        PlanFamily(chip="chip", tp=tp, dtype="bf16", dtype_rank=0, settings=(), usd_h=float(tp), most=1, order=tp)
        for tp in (1, 2)
    )
    evaluator = NoisyEvaluator({cheap: QUEUE, dear: QUEUE}, unlucky=cheap)
    best = search(evaluator.queues, evaluator, OBJECTIVES["cost"], JOB).best
    assert best is not None
    assert best.plan.family == cheap
    assert sum(level is Level.SURE for _, _, level in evaluator.calls) <= 2


def test_a_goal_that_is_met_without_confidence_is_not_met() -> None:
    @dataclass
    class Unsure(FakeEvaluator):
        def evaluate(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
            return replace(super().evaluate(plan, rate_per_s, level), clearance={"tpot_p90": 1.0})

    family = PlanFamily(chip="chip", tp=1, dtype="bf16", dtype_rank=0, settings=(), usd_h=1.0, most=1, order=0)
    for queues, found in ((Unsure, False), (FakeEvaluator, True)):
        evaluator = queues({family: QUEUE})
        assert (search(evaluator.queues, evaluator, OBJECTIVES["cost"], JOB).best is not None) is found


def test_of_one_price_and_equal_headroom_the_quicker_wins() -> None:
    """Without goals the load alone is a limit."""
    job = replace(JOB, goals=())
    slow, quick = replace(QUEUE, token_s=0.04), replace(QUEUE, token_s=0.01)
    spaces = [two_of_one_price(*pair) for pair in ((slow, quick), (quick, slow))]
    spaces = [FakeEvaluator({replace(f, dtype_rank=0): q for f, q in space.queues.items()}) for space in spaces]
    found = [search(space.queues, space, OBJECTIVES["cost"], job).best for space in spaces]
    assert [score.plan.family.order for score in found if score] == [1, 0]
