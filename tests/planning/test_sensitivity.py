"""What becomes of the best plan if an input is otherwise: borders are borders, and what comes beyond is the best."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.api.plan import plan_serving
from gnomon.search.rate import FULL_TOLERANCE
from gnomon.spec.answers import PlanReport
from gnomon.spec.answers.serving import Sensitivity

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


def test_only_what_acts_is_listed(planned: PlanReport) -> None:
    names = [one["input"] for one in planned.sensitivity]
    assert names == ["rate", "input length", "output length", "price of H100", "price of L40S"]


def test_the_rate_is_the_headroom(planned: PlanReport) -> None:
    one = of(planned, "rate")
    assert one["now"] == 9.0
    assert one["holds_to"] == pytest.approx(planned.best.max_rate_per_s)
    assert one["factor"] >= 1


@pytest.mark.parametrize(("name", "field"), [("input length", "input"), ("output length", "output")])
def test_a_search_beyond_the_border_finds_the_next_plan(planned: PlanReport, name: str, field: str) -> None:
    one = of(planned, name)
    assert one["holds_to"] is not None
    within = plan_serving(**ASK | {field: int(one["holds_to"])})
    beyond = plan_serving(**ASK | {field: round((1 + FULL_TOLERANCE) * one["holds_to"])})
    assert within.best.usd_h == planned.best.usd_h
    assert (beyond.best.label, beyond.best.usd_h) == (one["next"]["label"], one["next"]["usd_h"])
    assert beyond.best.label != planned.best.label


def test_at_the_crossing_two_plans_cost_the_same(planned: PlanReport) -> None:
    used = "price of H100" if "H100" in planned.best.label else "price of L40S"
    other = "price of L40S" if used.endswith("H100") else "price of H100"
    up, down = of(planned, used), of(planned, other)
    assert up["factor"] > 1 > down["factor"]
    assert up["next"]["usd_h"] == pytest.approx(up["factor"] * planned.best.usd_h)
    assert down["next"]["usd_h"] == pytest.approx(planned.best.usd_h)
    alone = plan_serving(**ASK | {"fleet": "L40S:4" if used.endswith("H100") else "H100:2"})
    assert up["next"]["usd_h"] == pytest.approx(alone.best.usd_h)


def test_less_sharing_and_fewer_accepted_drafts_go_down() -> None:
    ask = ASK | {"fleet": "H100:2", "input": 200, "prefix": "groups=4,tokens=1500", "rate": 30.0}
    shared = of(plan_serving(**ask, sensitivity=True), "shared prompts")
    assert 0.5 < shared["now"] < 1
    assert shared["holds_to"] is None or shared["holds_to"] < shared["now"]
    drafts = {"speculative_method": "ngram_gpu", "num_speculative_tokens": 3, "draft_acceptance": "0.8"}
    found = plan_serving(**ASK | {"fleet": "H100:1", "settings": FIXED | drafts, "rate": 4.0}, sensitivity=True)
    accepted = of(found, "draft acceptance")
    assert accepted["now"] == pytest.approx(0.8)
    assert accepted["factor"] < 1


def test_a_plan_for_the_highest_rate_has_no_range() -> None:
    found = plan_serving(**{name: value for name, value in ASK.items() if name != "rate"}, sensitivity=True)
    assert found.sensitivity == ()
    assert any(one.option == "--sensitivity" for one in found.not_modelled)
