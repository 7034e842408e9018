"""Scores do not depend on what was evaluated before them, though runs go on from shorter ones."""

from __future__ import annotations

from itertools import product

import pytest
from tests.planning.fake_engine import FakeBinding, power_use

from gnomon.load import model, parse_goals, parse_pool
from gnomon.planning.serving import evaluator as plan_evaluator
from gnomon.planning.serving.evaluator import ServingEvaluator
from gnomon.planning.serving.replicas import Replicas, Setup
from gnomon.search import Candidate, Level, PlanFamily
from gnomon.search.arrivals import Arrivals
from gnomon.spec import EngineChoice, Goal, ServingLoad

GOALS, TIGHTER = parse_goals("ttft_p90=1s,tpot_p99=40ms"), parse_goals("ttft_p90=300ms,tpot_p99=15ms")
COUNTS = {Level.SEARCH: 400, Level.TO_THE_END: 900, Level.FULL: 900, Level.SURE: 900}
POOL = parse_pool("H100:4")
FAMILY = PlanFamily(chip=POOL.chip.name, tp=1, dtype="bf16", dtype_rank=0, settings=(), usd_h=1.0, most=4, order=0)


@pytest.fixture(autouse=True)
def made_up_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_evaluator, "power_use", power_use)


def fresh(router: str, goals: tuple[Goal, ...]) -> ServingEvaluator:
    setup = Setup(
        model=model("llama-3.1-8b"),
        bindings={POOL.chip.name: FakeBinding(POOL)},  # type: ignore[dict-item]
        engine=EngineChoice(version="0.24.0"),
        kv_dtype="bf16",
    )
    load = ServingLoad(rate_per_s=1.0, input_tokens=800, output_tokens=150)
    arrivals = Arrivals(load, router)
    return ServingEvaluator(Replicas(setup, [FAMILY], arrivals.longest), arrivals, goals, COUNTS)


@pytest.mark.heavy
@pytest.mark.battery(6)
@pytest.mark.parametrize("router", ["random", "least-requests"])
@pytest.mark.parametrize("rate", [5.0, 60.0, 200.0])
def test_scores_are_those_of_a_fresh_evaluator(router: str, rate: float) -> None:
    known, plan = fresh(router, GOALS), Candidate(family=FAMILY, replicas=2)
    for goals, level in product((GOALS, TIGHTER), (Level.SEARCH, Level.SURE, Level.FULL, Level.TO_THE_END)):
        evaluator = known if goals is GOALS else known.with_goals(goals)
        assert evaluator.evaluate(plan, rate, level) == fresh(router, goals).evaluate(plan, rate, level)
        assert evaluator.bounds(FAMILY).floors_s.keys() == {goal.name for goal in goals}
