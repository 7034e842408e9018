"""Optimizers by kind: bytes of their states, what an update costs, and what a format saves."""

from __future__ import annotations

import pytest

from gnomon import simulate_training
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.spec.answers import TrainingReport

STATES = {"adamw": 12.0, "adam8bit": 6.03, "sgd": 8.0, "adafactor": 4.0, "lion": 8.0, "muon": 8.0, "adamw-bf16": 4.0,
          "adamw-moments-bf16": 8.0}  # fmt: skip
SMALL = load_model("llama-3.2-1b")
P, ENDS = SMALL.parameters, (SMALL.vocab + 1) * SMALL.hidden
"""All parameters, and those of the tied embedding and the norm before the head."""
BY_ADAMW = {"muon"}
"""Optimizers that leave embeddings and heads to AdamW."""


def step(**words: object) -> TrainingReport:
    given: dict[str, object] = {"on": "H200:8", "seq": 4096, "global_batch": 64} | words
    return simulate_training("llama-3.2-1b", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", STATES)
def test_states_by_kind(optimizer: str) -> None:
    expected = STATES[optimizer] * P + (STATES["adamw"] - STATES[optimizer]) * ENDS * (optimizer in BY_ADAMW)
    assert step(optimizer=optimizer).memory_parts[0]["optimizer"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("optimizer", ["adam8bit", "muon"])
def test_states_of_the_runner(optimizer: str) -> None:
    """Shared out as AdamW's are; its passes over values take longer than one kernel of AdamW's."""
    given = {"engine": "torch", "on": "H200:4", "recompute": "full"}
    alone, shared = (step(optimizer=optimizer, zero=zero, **given) for zero in (0, 2))
    expected = STATES[optimizer] * P + (STATES["adamw"] - STATES[optimizer]) * ENDS * (optimizer in BY_ADAMW)
    assert alone.memory_parts[0]["optimizer"] == pytest.approx(expected, rel=2e-3)
    assert shared.memory_parts[0]["optimizer"] == pytest.approx(expected / 4, rel=2e-3)
    took = [one.step_parts["optimizer_s"] for one in (shared, alone)]
    assert took[0] < took[1] / 2
    assert took[1] > 2 * step(**given).step_parts["optimizer_s"]


def test_orthogonal_updates_are_the_flops_of_their_matrices() -> None:
    """By hand: five steps of three GEMMs over q, k, v, out, gate, up and down of 16 layers, at the chip's rate at
    most."""
    hidden, inner, kv = 2048, 8192, 512
    shapes = [(hidden, hidden)] * 2 + [(kv, hidden)] * 2 + [(hidden, inner)] * 3
    flops = 16 * 5 * sum(4 * m * m * n + 2 * m**3 for m, n in shapes)
    given = {"engine": "torch", "on": "H200", "recompute": "full"}
    muon = step(optimizer="muon", **given).step_parts["optimizer_s"]
    passes = step(optimizer="muon", **given | {"on": "H200:8", "zero": 2}).step_parts["optimizer_s"]
    assert flops / 989e12 < muon < 3 * flops / 989e12 + 0.1
    assert passes < muon


def test_fewer_bytes_are_updated_sooner_and_products_take_longer() -> None:
    seconds = {name: step(optimizer=name).step_parts["optimizer_s"] for name in STATES}
    assert seconds["adamw-bf16"] < seconds["adam8bit"] < seconds["adamw-moments-bf16"] < seconds["adamw"]
    assert seconds["lion"] < seconds["adamw"] < seconds["muon"]
    shared = step(optimizer="muon", zero=1).step_parts["optimizer_s"]
    assert shared < seconds["muon"] / 4


@pytest.mark.parametrize("engine", ["torch", "megatron@3.0"])
def test_other_engines_have_two(engine: str) -> None:
    for optimizer in ("lion", "adamw-moments-bf16"):
        with pytest.raises(InputError, match="adamw"):
            step(optimizer=optimizer, engine=engine)


def test_narrow_products_are_quicker_and_keep_less() -> None:
    wide, narrow = step(), step(dtype="fp8")
    assert narrow.step_time_s.value < wide.step_time_s.value
    assert narrow.memory_parts[0]["activations"] < wide.memory_parts[0]["activations"]
    assert narrow.memory_parts[0]["weights"] > wide.memory_parts[0]["weights"], "copies in eight bits"
    with pytest.raises(InputError, match="fp8"):
        step(dtype="fp8", on="A100:8")
