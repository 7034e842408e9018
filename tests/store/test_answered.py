"""Answers that are about one deployment give its plan: what was predicted is what is exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon import store
from gnomon.errors import InputError
from gnomon.load.recipe import recipe_of
from gnomon.spec import Plan, Recipe, ServingLoad, Strategy, TrainingLoad

TRACE = str(Path(__file__).parents[2] / "examples" / "chat.csv")


def kept(kind: str, answer: Any) -> Plan:
    """The plan of an answer: as the newest run, by its id and as a file, which all say the same."""
    payload = json.loads(json.dumps(answer.to_dict()))
    id = store.save(kind, payload)
    file = store.home() / "answer.json"
    file.write_text(json.dumps(payload))
    plan = store.resolve_plan("last")
    assert plan == store.resolve_plan(id) == store.resolve_plan(file)
    return plan


def test_a_prediction() -> None:
    plan = kept(
        "predict",
        gnomon.predict(
            "qwen3-30b-a3b", on="H200:4", batch=4, context=100, dtype="fp8", kv_dtype="fp8", tp=2, dp=2, ep=4,
            settings={"max_num_seqs": 64},
        ),
    )  # fmt: skip
    assert (plan.model, plan.chip, plan.replicas) == ("qwen3-30b-a3b", "H200-SXM-141GB", 1)
    assert plan.strategy == Strategy(tp=2, dp=2, ep=4)
    assert (plan.dtype, plan.kv_dtype, plan.load) == ("fp8", "fp8", None)
    assert (plan.engine.label, plan.engine.settings) == ("vllm@0.24.0", {"max_num_seqs": 64})


def test_context_parallel_ranks_mean_the_same_in_a_prediction_and_in_a_plan() -> None:
    answer = gnomon.predict("qwen3-235b-a22b", on="H200:8", batch=4, context=100, tp=8, cp=2)
    plan = kept("predict", answer)
    assert (plan.strategy.cp, plan.chips) == (2, 8)
    command = gnomon.export(plan).command
    assert "--tensor-parallel-size 8 " in command
    assert "--decode-context-parallel-size 2" in command


def test_a_fit() -> None:
    plan = kept("fit", gnomon.fit("llama-3.1-8b", on="H100", context=4096, techniques=["int4-weights"]))
    assert plan.engine.settings == {"max_model_len": 4096}
    assert (plan.dtype, plan.strategy.techniques) == ("int4", ("int4-weights",))


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"trace": TRACE, "rate": 2.0}, ServingLoad(trace=TRACE, rate_per_s=2.0, requests=60)),
        (
            {"rate": 5.0, "input": 64, "output": 8, "requests": 20, "seed": 3},
            ServingLoad(rate_per_s=5.0, input_tokens=64, output_tokens=8, requests=20, seed=3),
        ),
    ],
)
def test_a_simulated_load(load: dict[str, Any], expected: ServingLoad) -> None:
    answer = gnomon.simulate_serving("llama-3.1-8b", on="H100:2", **load)
    plan = kept("simulate.serve", answer)
    assert isinstance(plan.load, ServingLoad)
    assert plan.load.trace == expected.trace
    assert plan.load.requests == answer.requests
    assert (plan.load.rate_per_s, plan.load.input_tokens, plan.load.seed) == (
        expected.rate_per_s,
        expected.input_tokens,
        expected.seed,
    )


def test_a_training_step() -> None:
    recipe = {"zero": 2, "recompute": "full", "micro_batch": 1}
    answer = gnomon.predict("llama-3.1-8b", on="H100:8", phase="train", batch=16, tokens=2048, tp=2, settings=recipe)
    plan = kept("predict", answer)
    assert plan.load == TrainingLoad(seq=2048, global_batch=16)
    assert plan.strategy == Strategy(tp=2, dp=4)
    assert recipe_of(plan.engine.settings) == Recipe(zero=2, recompute="full", sequence_parallel=True)


def test_what_no_serving_engine_runs_holds_no_plan() -> None:
    id = store.save("predict", json.loads(json.dumps(gnomon.predict("dit-xl-2-256", on="H100", batch=2).to_dict())))
    with pytest.raises(InputError, match=f"{id}, is of `gnomon predict` and holds no plan"):
        store.resolve_plan("last")


@pytest.mark.parametrize("field", ["model", "on", "dtype", "kv_dtype", "engine", "tp", "settings", "techniques"])
@pytest.mark.parametrize("value", [[1], {"a": 1}, -3, "no such thing"])
def test_a_damaged_answer_is_refused_by_name(field: str, value: Any) -> None:
    payload = json.loads(json.dumps(gnomon.predict("llama-3.1-8b", on="H100:2", batch=1, context=10).to_dict()))
    payload["inputs"][field] = value
    id = store.save("predict", payload)
    try:
        plan = store.resolve_plan(id)
    except InputError as error:
        assert id in str(error)
    else:
        with pytest.raises(InputError):
            gnomon.export(plan)
