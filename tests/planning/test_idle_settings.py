"""A setting that only matters between ranks which are not there changes no figure, and a search does not try it."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.engines.training.job import idle_settings
from gnomon.load import model as load_model
from gnomon.spec import Strategy
from gnomon.spec.training import CP_COMMS

VALUES: dict[str, tuple[Any, ...]] = {
    "zero": (0, 1, 2, 3),
    "schedule": ("1f1b", "gpipe"),
    "sequence_parallel": (False, True),
    "cp_comm": CP_COMMS,
    "expert_tp": (0, 1),
    "dp_shard": (0, 1, 2, 8),
    "tp_overlap": (False, True),
    "cp_a2a": (0, 2),
    "hpz": (0, 2),
    "dispatch": (None, "alltoall", "deepep"),
    "capacity_factor": (0.0, 0.5),
    "pad_to_capacity": (False, True),
    "imbalance": (1.0, 1.5),
    "ep_overlap": (False, True),
}
ALONE = [
    ("llama-3.1-8b", {"tp": 1}),
    ("llama-3.1-8b", {"tp": 4}),
    ("llama-3.1-8b", {"dp": 4}),
    ("llama-3.1-8b", {"pp": 4}),
    ("llama-3.1-8b", {"cp": 2}),
    ("qwen3-30b-a3b", {"tp": 1}),
    ("qwen3-30b-a3b", {"tp": 4}),
    ("qwen3-30b-a3b", {"dp": 4, "ep": 4}),
]
"""Models, and degrees of which all others are 1."""


def step(model: str, degrees: dict[str, int], engine: str, **changes: Any) -> dict[str, Any]:
    ranks = degrees.get("tp", 1) * degrees.get("pp", 1) * degrees.get("dp", 1) * degrees.get("cp", 1)
    load = {"on": f"H200:{ranks}", "seq": 8192, "micro_batch": 1, "global_batch": 8}
    return gnomon.simulate_training(model, **load, engine=engine, **degrees, **changes).to_dict()


def without_words(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("inputs", "not_modelled", "title", "plan")}


@pytest.mark.heavy
@pytest.mark.battery(8)
@pytest.mark.parametrize("engine", ["torch", "megatron"])
@pytest.mark.parametrize(("model", "degrees"), ALONE, ids=str)
def test_settings_between_ranks_that_are_not_there_change_nothing(
    model: str, degrees: dict[str, int], engine: str
) -> None:
    if engine == "torch" and model.startswith("qwen") and "tp" in degrees:
        return  # the built-in runner has no tensor parallelism of experts
    network = load_model(model)
    idle, known = (
        idle_settings(Strategy(**degrees), network),
        VALUES | {"layers_per_stage": (None, f"{network.layers}")},
    )
    assert set(idle) <= set(known)
    assert idle
    for name in idle:
        for zero in (0, 3) if name in ("dp_shard", "hpz") else (0,):
            given = [{"zero": zero} | {name: value} for value in known[name]]
            answers = [without_words(step(model, degrees, engine, **one)) for one in given]
            assert all(answer == answers[0] for answer in answers), (name, zero)


def test_states_shard_over_the_copies_of_experts_even_without_data_parallelism() -> None:
    """Four tensor-parallel ranks with unsharded experts hold four copies of each: ZeRO 1 shards their states."""
    strategy, model = Strategy(tp=4), load_model("qwen3-30b-a3b")
    assert "zero" in idle_settings(strategy, model)
    assert "zero" not in idle_settings(strategy, model, expert_tp=1)
    plain, sharded = (
        step("qwen3-30b-a3b", {"tp": 4}, "megatron", expert_tp=1, zero=zero)["peak_memory_bytes"]["value"]
        for zero in (0, 1)
    )
    assert sharded < plain


@pytest.mark.parametrize("engine", ["torch", "megatron"])
def test_a_plan_on_one_chip_shards_nothing(engine: str) -> None:
    report = gnomon.plan_training("llama-3.2-1b", cluster="H100:1", seq=4096, global_batch=8, engine=engine)
    assert report.best.plan.engine.settings["zero"] == 0
    assert "ZeRO" not in report.label
