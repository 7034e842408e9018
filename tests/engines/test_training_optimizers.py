"""Optimizers by kind: bytes of their states, what an update costs, and what a format saves."""

from __future__ import annotations

import pytest

from gnomon import simulate_training
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.spec.answers import TrainingReport

STATES = {"adamw": 12.0, "adam8bit": 6.03, "sgd": 8.0, "adafactor": 4.0, "lion": 8.0, "muon": 8.0, "adamw-bf16": 4.0}
P = load_model("llama-3.2-1b").parameters


def step(**words: object) -> TrainingReport:
    given: dict[str, object] = {"on": "H200:8", "seq": 4096, "global_batch": 64} | words
    return simulate_training("llama-3.2-1b", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", STATES)
def test_states_by_kind(optimizer: str) -> None:
    assert step(optimizer=optimizer).memory_parts[0]["optimizer"] == pytest.approx(STATES[optimizer] * P, rel=1e-9)


def test_fewer_bytes_are_updated_sooner_and_products_take_longer() -> None:
    seconds = {name: step(optimizer=name).step_parts["optimizer_s"] for name in STATES}
    assert seconds["adamw-bf16"] < seconds["adam8bit"] < seconds["adamw"]
    assert seconds["lion"] < seconds["adamw"] < seconds["muon"]
    shared = step(optimizer="muon", zero=1).step_parts["optimizer_s"]
    assert shared < seconds["muon"] / 4


@pytest.mark.parametrize("engine", ["torch", "megatron@3.0"])
def test_other_engines_have_two(engine: str) -> None:
    with pytest.raises(InputError, match="adamw"):
        step(optimizer="lion", engine=engine)


def test_narrow_products_are_quicker_and_keep_less() -> None:
    wide, narrow = step(), step(dtype="fp8")
    assert narrow.step_time_s.value < wide.step_time_s.value
    assert narrow.memory_parts[0]["activations"] < wide.memory_parts[0]["activations"]
    assert narrow.memory_parts[0]["weights"] > wide.memory_parts[0]["weights"], "copies in eight bits"
    with pytest.raises(InputError, match="fp8"):
        step(dtype="fp8", on="A100:8")
