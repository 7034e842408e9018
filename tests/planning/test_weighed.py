"""`--with auto` is what trying each combination by hand finds, and says what each technique buys."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gnomon.api.plan import plan_serving
from gnomon.errors import GnomonError
from gnomon.spec.answers import PlanReport

FIXED = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
CASES: list[dict[str, Any]] = [
    {"model": "llama-3.1-8b", "fleet": "L40S:4", "rate": 9.0, "input": 800, "output": 120},
    {"model": "llama-3.1-8b", "fleet": "A10G:4", "rate": 3.0, "input": 400, "output": 200},
    {"model": "qwen3-8b", "fleet": "H100:2", "rate": 20.0, "input": 600, "output": 200},
]
GOALS = "ttft_p90=600ms,tpot_p90=45ms"


def auto(case: dict[str, Any], **more: Any) -> PlanReport:
    return plan_serving(**case, slo=GOALS, settings=FIXED, requests=2000, techniques=["auto"], **more)


def by_hand(case: dict[str, Any]) -> dict[tuple[tuple[str, ...], str], float]:
    """The price of the best plan with each allowed combination."""
    found = {}
    for names, kv in itertools.product(((), ("int4-weights",), ("dequantize-on-the-fly",)), ("bf16", "fp8")):
        try:
            plan = plan_serving(**case, slo=GOALS, settings=FIXED, requests=2000, techniques=names, kv_dtype=kv)
        except GnomonError:
            continue
        found[names, kv] = plan.best.usd_h
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["fleet"]))
def test_it_is_the_best_of_all_combinations(case: dict[str, Any]) -> None:
    found, tried = auto(case), by_hand(case)
    assert found.best.usd_h == pytest.approx(min(tried.values()))
    used = tuple(one["name"] for one in found.weighed if one["used"])
    plan = found.best.plan
    assert tried[plan.strategy.techniques, plan.kv_dtype] == pytest.approx(found.best.usd_h)
    if tried.get(((), "bf16")) == pytest.approx(min(tried.values())):
        assert used == ()  # what buys nothing is not used


@pytest.mark.heavy
def test_each_technique_has_its_line() -> None:
    found = auto(CASES[0])
    told = {one["name"]: one for one in found.weighed}
    assert not told["int4-weights"]["lossless"] and not told["fp8-kv"]["lossless"]
    assert told["kv-offloading"]["lossless"] and told["speculative-decoding"]["lossless"]
    assert "share no beginnings" in told["kv-offloading"]["why"]
    assert "acceptance" in told["speculative-decoding"]["why"]
    assert "cannot be simulated" in told["kv-swap"]["why"]


@pytest.mark.slow
def test_the_figures_of_a_line_are_those_of_the_plan_with_it_alone() -> None:
    told, tried = {one["name"]: one for one in auto(CASES[0]).weighed}, by_hand(CASES[0])
    assert told["int4-weights"]["usd_h"] == pytest.approx(tried[("int4-weights",), "bf16"])
    assert told["fp8-kv"]["usd_h"] == pytest.approx(tried[(), "fp8"])


@pytest.mark.slow
def test_labels_tell_apart_what_was_weighed() -> None:
    """Prefixes that leave no room: every option has a plan of its own."""
    case = {**CASES[0], "prefix": "groups=20,tokens=1024", "rate": 3.0}
    found = auto(case, dtypes=["fp8"])
    told = {one["name"]: one.get("label", "") for one in found.weighed}
    assert "fp8 KV cache" in told["fp8-kv"]
    assert "kv-offloading" in told["kv-offloading"]
    assert "no prefix-caching" not in told["prefix-caching"] and "no prefix-caching" not in told["fp8-kv"]
    labels = [label.partition("x ")[2] for label in told.values() if label]
    assert len(set(labels)) == len(labels)


@pytest.mark.heavy
def test_a_kv_cache_in_fewer_bits_is_named() -> None:
    found = plan_serving(**CASES[0], slo=GOALS, settings=FIXED, requests=2000, kv_dtype="fp8", dtypes=["bf16"])
    assert "bf16, fp8 KV cache, chunked" in found.best.label
    assert all("fp8 KV cache" in score.label for score in found.pareto)
    assert "KV cache in fp8: quality changes" in str(found)


@pytest.mark.heavy
def test_a_format_that_is_given_leaves_out_techniques_that_set_another() -> None:
    found = auto(CASES[0], dtypes=["fp8"])
    told = {one["name"]: one for one in found.weighed}
    assert not told["int4-weights"]["used"] and "int4" in told["int4-weights"]["why"]


@pytest.mark.slow
def test_drafts_that_are_given_are_weighed_and_not_taken_for_granted() -> None:
    """Drafts that are never accepted only cost time."""
    drafts = {"speculative_method": "ngram_gpu", "num_speculative_tokens": 3, "draft_acceptance": "0.0"}
    case = {"model": "llama-3.1-8b", "fleet": "H100:2", "rate": 4.0, "input": 400, "output": 100, "dtypes": ["fp8"]}
    ask: dict[str, Any] = {"slo": GOALS, "settings": FIXED | drafts, "requests": 2000, "techniques": ["auto"]}
    found = plan_serving(**case, **ask)
    told = {one["name"]: one for one in found.weighed}
    assert not told["speculative-decoding"]["used"]
    assert "speculative_method" not in found.best.plan.engine.settings


@pytest.mark.heavy
def test_drafts_with_a_model_of_their_own_are_left_out_with_it() -> None:
    """Plans without drafts are searched too, though the draft model is named."""
    drafts = {"speculative_method": "eagle3", "num_speculative_tokens": 2, "draft_acceptance": "0.0"}
    settings = FIXED | drafts | {"draft_model": "some/head"}
    case = {"model": "llama-3.1-8b", "fleet": "H100:1", "rate": 2.0, "input": 200, "output": 40, "dtypes": ["fp8"]}
    found = plan_serving(**case, slo=GOALS, settings=settings, requests=400, techniques=["auto"])
    told = {one["name"]: one for one in found.weighed}
    assert not told["speculative-decoding"]["used"] and "without it" in told["speculative-decoding"]["why"]
    assert not {"draft_model", "speculative_method"} & set(found.best.plan.engine.settings)


@pytest.mark.heavy
@pytest.mark.battery(2)
@pytest.mark.parametrize(("objective", "unit"), [("latency", " end to end"), ("energy", " Wh/Mtok")])
def test_what_a_technique_buys_is_said_in_the_figure_of_the_objective(objective: str, unit: str) -> None:
    told = {one["name"]: one["why"] for one in auto(CASES[2], objective=objective).weighed}
    assert unit in told["int4-weights"]
    assert "/h" not in told["int4-weights"].replace("Wh/", "")
