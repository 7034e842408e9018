"""Rows of published mixtures, as one rank's share."""

from __future__ import annotations

import pytest

from gnomon.calibrate.truth_experts import experts
from gnomon.errors import CalibrationError

ROW = {
    "framework": "vllm", "framework_version": "0.24.0", "kernel": "triton", "dtype": "bfloat16", "num_tokens": "64",
    "hidden_size": "2048", "inter_size": "768", "topk": "8", "num_experts": "128", "moe_tp_size": "2",
    "moe_ep_size": "4", "distribution": "balanced",
}  # fmt: skip
DEEPSEEK = {"hidden_size": "7168", "inter_size": "2048", "num_experts": "256"}


def sizes(**changes: str) -> dict[str, float]:
    read = experts(ROW | changes)
    assert read is not None
    return read[2]


def test_a_rank_has_its_share() -> None:
    found = sizes()
    assert (found["inter"], found["experts"], found["topk"], found["tokens"]) == (384, 32, 2, 64)
    assert (found["visited"], found["absent"], found["skew"], found["matrices"]) == (32, 64 * 6, 0, 3)


def test_the_busiest_rank_of_an_uneven_group_has_more() -> None:
    even, uneven = sizes(), sizes(distribution="power_law_1.2")
    assert uneven["tokens"] > 1.2 * even["tokens"]
    assert uneven["visited"] < even["visited"]
    assert uneven["skew"] == 1.2
    assert uneven["tokens"] * uneven["topk"] + uneven["absent"] == pytest.approx(64 * 8)


def test_routers_that_choose_groups_first_are_left_out() -> None:
    assert experts(ROW | DEEPSEEK) is None
    assert experts(ROW | DEEPSEEK | {"moe_ep_size": "1", "distribution": "power_law_1.2"}) is not None
    assert experts(ROW | DEEPSEEK | {"framework": "trtllm"}) is not None


def test_ungated_models_run_two_matrices_where_the_release_does() -> None:
    nemotron = {"hidden_size": "2688", "inter_size": "1856", "num_experts": "128", "topk": "6"}
    assert sizes(**nemotron)["matrices"] == 2
    assert sizes(**nemotron, framework_version="0.22.0")["matrices"] == 3
    assert sizes(kernel="moe_torch_flow_nongated", framework="trtllm")["matrices"] == 2


def test_a_release_that_multiplies_whole_rows() -> None:
    whole = sizes(framework="sglang", framework_version="0.5.10")
    assert whole["tokens"] * whole["topk"] == 64 * 8


def test_one_model_is_one_group() -> None:
    assert sizes(moe_tp_size="1")["model"] == sizes(moe_ep_size="8", num_tokens="1")["model"]
    assert sizes()["model"] != sizes(topk="4")["model"]


def test_broken_rows_say_what_is_wrong() -> None:
    with pytest.raises(CalibrationError, match="many"):
        experts(ROW | {"num_tokens": "many"})
