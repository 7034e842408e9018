"""Settings of vLLM about drafts and experts: each acts, is refused, or is listed as having no effect."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError

LOAD: dict[str, Any] = {"rate": 20, "input": 64, "output": 8, "requests": 12}


def served(model: str, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return gnomon.simulate_serving(model, **{"on": "H100", **LOAD, **more}, settings=settings).to_dict()


def listed(answer: dict[str, Any]) -> dict[str, str]:
    return {one["option"]: one["why"] for one in answer["not_modelled"]}


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"draft_acceptance": "0.9@nan/0@0.5"}, "draft_acceptance"),
        ({"draft_acceptance": "0.9@inf/0@-inf"}, "draft_acceptance"),
        ({"draft_acceptance": "nan"}, "draft_acceptance"),
        ({"draft_acceptance": "inf"}, "draft_acceptance"),
        ({"draft_acceptance": ""}, "draft_acceptance"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens"),
        ({"speculative_method": "mtp"}, "speculative_method"),
    ],
)
def test_what_says_nothing_of_drafts_is_refused(settings: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as refused:
        served("llama-3.1-8b", {"speculative_method": "ngram_gpu", **settings})
    assert where in str(refused.value.where)


@pytest.mark.heavy
def test_an_acceptance_that_nobody_gave_is_said() -> None:
    drafts = {"speculative_method": "ngram_gpu", "num_speculative_tokens": 3}
    assert "70%" in listed(served("llama-3.2-1b", drafts))["draft_acceptance"]
    given, without = served("llama-3.2-1b", {**drafts, "draft_acceptance": "0.7"}), served("llama-3.2-1b", drafts)
    assert "draft_acceptance" not in listed(given) and given["tpot_s"] == without["tpot_s"]
    assert "draft_acceptance" not in listed(served("llama-3.2-1b", {}))


@pytest.mark.parametrize(("model", "said"), [("glm-4.5", False), ("qwen3-next-80b-a3b", True)])
def test_prediction_heads_that_a_file_does_not_describe_are_said(model: str, said: bool) -> None:
    settings = {"speculative_method": "mtp", "draft_acceptance": "0.8", "max_model_len": 4096}
    answer = served(model, settings, on="H200:8", requests=4)
    assert ("speculative_method=mtp" in listed(answer)) == said


@pytest.mark.heavy
def test_the_popularity_of_experts_that_all_ranks_have_is_listed() -> None:
    popular = {"expert_popularity": "zipf:1"}
    alone = served("qwen3-30b-a3b", popular, on="H100:2", tp=2)
    assert "expert_popularity=zipf:1" in listed(alone)
    assert alone["tpot_s"] == served("qwen3-30b-a3b", {}, on="H100:2", tp=2)["tpot_s"]
    spread = served("qwen3-30b-a3b", popular, on="H100:2", tp=2, ep=2)
    assert "expert_popularity=zipf:1" not in listed(spread)
    assert spread["tpot_s"] != served("qwen3-30b-a3b", {}, on="H100:2", tp=2, ep=2)["tpot_s"]


def test_placing_experts_that_are_as_popular_is_listed() -> None:
    placed = served("qwen3-30b-a3b", {"enable_eplb": True}, on="H100:2", tp=2, ep=2)
    assert "enable_eplb=true" in listed(placed)
    popular = {"enable_eplb": True, "expert_popularity": "zipf:1"}
    assert not listed(served("qwen3-30b-a3b", popular, on="H100:2", tp=2, ep=2))
