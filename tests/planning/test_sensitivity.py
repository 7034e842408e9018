"""What becomes of the best plan if an input is otherwise: borders are borders, and what comes beyond is the best."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gnomon.api.plan import plan_serving
from gnomon.load.serving import plan_of
from gnomon.planning.serving import sensitivity
from gnomon.search.rate import FULL_TOLERANCE
from gnomon.spec.answers import PlanReport
from gnomon.spec.answers.serving import Sensitivity
from gnomon.spec.questions.serving import PlanServingQuestion

FIXED = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
ASK: dict[str, Any] = {
    "model": "llama-3.1-8b", "fleet": "H100:2,L40S:4", "input": 1024, "output": 128, "rate": 9.0, "dtypes": ["fp8"],
    "slo": "ttft_p90=400ms,tpot_p90=40ms", "settings": FIXED, "requests": 2000,
}  # fmt: skip


@pytest.fixture(scope="module")
def planned() -> PlanReport:
    return plan_serving(**ASK, sensitivity=True)


def of(answer: PlanReport, name: str) -> Sensitivity:
    return next(one for one in answer.sensitivity if one["input"] == name)


@pytest.mark.heavy
def test_only_what_acts_is_listed(planned: PlanReport) -> None:
    names = [one["input"] for one in planned.sensitivity]
    assert names == ["rate", "input length", "output length", "price of H100", "price of L40S"]


@pytest.mark.slow
def test_the_rate_is_the_headroom(planned: PlanReport) -> None:
    one = of(planned, "rate")
    assert one["now"] == 9.0
    assert one["holds_to"] == pytest.approx(planned.best.max_rate_per_s)
    assert one["factor"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "field"), [("input length", "input"), ("output length", "output")])
def test_a_search_beyond_the_border_finds_the_next_plan(planned: PlanReport, name: str, field: str) -> None:
    one = of(planned, name)
    assert one["holds_to"] is not None
    within = plan_serving(**ASK | {field: int(one["holds_to"])})
    beyond = plan_serving(**ASK | {field: round((1 + FULL_TOLERANCE) * one["holds_to"])})
    assert within.best.usd_h == planned.best.usd_h
    assert (beyond.best.label, beyond.best.usd_h) == (one["next"]["label"], one["next"]["usd_h"])
    assert beyond.best.label != planned.best.label


@pytest.mark.slow
def test_at_the_crossing_two_plans_cost_the_same(planned: PlanReport) -> None:
    used = "price of H100" if "H100" in planned.best.label else "price of L40S"
    other = "price of L40S" if used.endswith("H100") else "price of H100"
    up, down = of(planned, used), of(planned, other)
    assert up["factor"] > 1 > down["factor"]
    assert up["next"]["usd_h"] == pytest.approx(up["factor"] * planned.best.usd_h)
    assert down["next"]["usd_h"] == pytest.approx(planned.best.usd_h)
    alone = plan_serving(**ASK | {"fleet": "L40S:4" if used.endswith("H100") else "H100:2"})
    assert up["next"]["usd_h"] == pytest.approx(alone.best.usd_h)


@pytest.mark.slow
def test_less_sharing_and_fewer_accepted_drafts_go_down() -> None:
    ask = ASK | {"fleet": "H100:2", "input": 200, "prefix": "groups=4,tokens=1500", "rate": 30.0}
    planned = plan_serving(**ask, sensitivity=True)
    shared = of(planned, "shared prompts")
    assert 0.5 < shared["now"] < 1
    assert shared["holds_to"] is None or shared["holds_to"] < shared["now"]
    own = of(planned, "unshared input")  # the 1,500 tokens of a prefix stay as they are
    assert own["now"] == 200
    assert own["holds_to"] is not None
    assert own["holds_to"] == pytest.approx(own["factor"] * 200)
    within = plan_serving(**ask | {"input": int(own["holds_to"])})
    beyond = plan_serving(**ask | {"input": round((1 + FULL_TOLERANCE) * own["holds_to"])})
    assert within.best.label == planned.best.label != beyond.best.label
    drafts = {"speculative_method": "ngram_gpu", "num_speculative_tokens": 3, "draft_acceptance": "0.8"}
    found = plan_serving(**ASK | {"fleet": "H100:1", "settings": FIXED | drafts, "rate": 4.0}, sensitivity=True)
    accepted = of(found, "draft acceptance")
    assert accepted["now"] == pytest.approx(0.8)
    assert accepted["factor"] < 1


@pytest.mark.heavy
def test_a_plan_for_the_highest_rate_has_no_range() -> None:
    found = plan_serving(**{name: value for name, value in ASK.items() if name != "rate"}, sensitivity=True)
    assert found.sensitivity == ()
    assert any(one.option == "--sensitivity" for one in found.not_modelled)


def test_a_plan_with_as_many_of_a_chip_crosses_at_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chips of one kind cost the same in both plans: no price of it makes one cheaper than the other."""
    task = plan_of(PlanServingQuestion(**ASK, pools="auto"))
    h100, l40s = (pool.chip for pool in task.fleet.pools)
    plans: dict[Any, tuple[int, int]] = {"best": (2, 0), "alone": (0, 4), "alike": (2, 0)}
    found = iter(["alone", "alike"])
    monkeypatch.setattr(sensitivity, "best_of", lambda task: next(found))
    monkeypatch.setattr(sensitivity, "_chips", lambda plan, chip: plans[plan][chip != h100.name])
    cheaper = {"best": 0.0, "alone": 0.0, "alike": -1.0}

    def usd_h(task: Any, plan: Any) -> float:
        each = [pool.chip.price_usd_h for pool in task.fleet.pools]
        return cheaper[plan] + sum(count * price for count, price in zip(plans[plan], each, strict=True))

    monkeypatch.setattr(sensitivity, "usd_h_of", usd_h)
    factor, other = sensitivity._crossing(task, cast(Any, "best"), h100.name)
    assert (factor, other) == (pytest.approx(4 * l40s.price_usd_h / (2 * h100.price_usd_h)), "alone")
