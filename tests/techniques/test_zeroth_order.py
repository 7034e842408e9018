"""Zeroth-order training: what a forward pass needs and takes, twice, and passes over the weights."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.papers.machines import cluster, host

STEP: dict[str, Any] = {"on": "A100", "seq": 1024, "global_batch": 8, "optimizer": "adamw-bf16"}
P = load_model("opt-13b").parameters


def step(*techniques: str, model: str = "opt-13b", **more: Any) -> Any:
    return gnomon.simulate_training(model, **STEP | more, techniques=list(techniques))


def test_weights_and_one_forward_pass_are_all_that_is_held() -> None:
    """26 GB on one A100 for OPT-13B in 16 bits, as published for MeZO and for inference (arXiv:2305.17333)."""
    parts = step("zeroth-order").memory_parts[0]
    assert parts["weights"] == pytest.approx(2 * P, rel=1e-3)
    assert all(parts.get(name, 0.0) == 0 for name in ("gradients", "optimizer", "activations"))
    vocab = load_model("opt-13b").vocab
    assert parts["working"] == 4 * 2 * vocab * 5120 > 1024 * vocab * (2 + 4), "numbers for the embedding, or logits"
    assert step("zeroth-order").peak_memory_bytes.value == pytest.approx(26e9, rel=0.1)


def test_a_step_is_two_forward_passes_and_four_over_the_weights() -> None:
    plain, moved = step(), step("zeroth-order")
    assert moved.step.flops["model"] == pytest.approx(2 / 3 * plain.step.flops["model"], rel=0.02)
    assert moved.step.flops["recomputed"] == 0
    assert 0.5 < moved.step_parts["pipeline_s"] / plain.step_parts["pipeline_s"] < 0.7
    moved_bytes = 4 * P * (2 + 2 * 2 + 2)
    assert moved_bytes / 2.04e12 < moved.step_parts["optimizer_s"] < 3 * moved_bytes / 2.04e12
    assert moved.trainable_parameters == plain.trainable_parameters == P


def test_directions_are_steps_of_one() -> None:
    one, three = step("zeroth-order"), step("zeroth-order:directions=3")
    assert three.step_time_s.value == pytest.approx(3 * one.step_time_s.value, rel=1e-4)
    assert three.peak_memory_bytes.value == one.peak_memory_bytes.value


def test_copies_exchange_a_loss_alone() -> None:
    alone, four = step("zeroth-order"), step("zeroth-order", on="A100:4", global_batch=32)
    assert four.exposed_communication_s == 0
    assert four.step_time_s.value == pytest.approx(alone.step_time_s.value, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on": "A100:2", "pp": 2}, "with a pipeline"),
        ({"on": "A100:2", "zero": 1}, "no states or gradients to shard"),
        ({"words": "zeroth-order:layers=host", "micro_batch": 2}, "use one micro-batch"),
        ({"recompute": "full"}, "nothing is saved"),
        ({"engine": "transformers", "model": "llama-3.2-1b", "optimizer": "adamw"}, "use adamw-bf16"),
    ],
)
def test_what_does_not_go_with_it(given: dict[str, Any], said: str) -> None:
    given = dict(given)
    with pytest.raises(InputError, match=said):
        step(given.pop("words", "zeroth-order"), **given)


def test_it_runs_eager_modules_too() -> None:
    found = step("zeroth-order", model="llama-3.2-1b", engine="transformers")
    assert found.memory_parts[0]["weights"] == pytest.approx(2 * load_model("llama-3.2-1b").parameters, rel=0.05)
    assert found.memory_parts[0].get("gradients", 0.0) == 0


LAYER = 2 * (12 * 5120**2 + 13 * 5120)
"""Bytes of a layer of OPT-13B: matrices, biases and norms."""


def test_three_layers_are_on_the_chip_where_they_lie_on_the_host() -> None:
    plain, found = (step(named, global_batch=1) for named in ("zeroth-order", "zeroth-order:layers=host"))
    parts, before = found.memory_parts[0], plain.memory_parts[0]
    assert before["weights"] - parts["weights"] == pytest.approx(37 * LAYER)
    assert found.step.host_bytes == pytest.approx(40 * LAYER)
    assert parts["working"] == 4 * 2 * 4 * 5120**2, "numbers for a matrix of the feed-forward network"


@pytest.mark.parametrize("directions", [1, 2])
def test_copies_both_ways_leave_the_longer_of_copies_and_passes(directions: int) -> None:
    """Of few tokens a step is its copies, of many its passes and a copy at both ends."""
    words = {"directions": f",directions={directions}" if directions > 1 else ""}
    machine = host(cores=64, memory_gib=512, memory_gb_s=400, adam_gparam_s=3, link_gb_s=10)
    for seq, batch in ((64, 1), (2048, 32)):
        given: dict[str, Any] = {"on": cluster("A100-80GB", 1, 1, machine), "seq": seq, "global_batch": batch}
        given["micro_batch"] = batch
        plain = step(f"zeroth-order:directions={directions}", **given)
        found = step("zeroth-order:layers=host{directions}".format(**words), **given)
        copy = directions * LAYER / 8.7e9
        waited = found.step_time_s.value - plain.step_time_s.value
        if batch > 1:
            assert waited == pytest.approx(2 * copy, rel=1e-3)
        else:
            assert found.step_time_s.value == pytest.approx(42 * copy, rel=0.1)
            assert 0 < waited < 42 * copy
