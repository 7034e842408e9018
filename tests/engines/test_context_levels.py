"""Context parallelism in two levels under Megatron-LM, and DeepSpeed-Ulysses."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.spec.answers import TrainingReport


def step(engine: str = "megatron", **others: Any) -> TrainingReport:
    asked: dict[str, Any] = {"on": "H100:32", "seq": 65536, "global_batch": 4, "cp": 16, "recompute": "full", "zero": 1}
    return gnomon.simulate_training("llama-3.1-8b", **(asked | {"engine": engine} | others))


def test_one_level_is_its_own_kind() -> None:
    small: dict[str, Any] = {"cp": 8, "on": "H100:16"}
    for inner, kind in ((1, "p2p"), (8, "a2a")):
        both = step(cp_comm="a2a+p2p", cp_a2a=inner, **small), step(cp_comm=kind, **small)
        assert both[0].step_time_s.value == both[1].step_time_s.value
        assert both[0].peak_memory_bytes.value == both[1].peak_memory_bytes.value


def test_more_ranks_than_heads_trade_inside_a_node() -> None:
    """Sixteen ranks cannot share eight key heads; eight of a node can, and a ring of two joins the nodes."""
    with pytest.raises(InputError, match="heads of a tensor-parallel rank"):
        step(cp_comm="a2a")
    ring, both = step(cp_comm="p2p"), step(cp_comm="a2a+p2p", cp_a2a=8)
    assert both.step_time_s.value < ring.step_time_s.value


@pytest.mark.parametrize(
    ("others", "told", "where"),
    [
        ({"cp_comm": "a2a+p2p"}, "nothing says how large", "--cp-a2a"),
        ({"cp_comm": "a2a+p2p", "cp_a2a": 3}, "cannot be split into 3", "--cp-a2a"),
        ({"cp_comm": "a2a+p2p", "cp_a2a": 16}, "heads of a tensor-parallel rank", "--cp"),
        ({"cp_comm": "p2p", "cp_a2a": 2}, "and cp_comm is p2p", "--cp-a2a"),
        ({"cp_comm": "a2a+p2p", "cp_a2a": 8, "engine": "torchtitan", "zero": 2}, "has no a2a", "--cp-comm"),
        ({"cp_comm": "p2p", "engine": "deepspeed"}, "trades tokens for heads", "--cp-comm"),
        ({"cp": 8, "cp_comm": "a2a", "engine": "deepspeed@0.9"}, "no sequence parallelism", "--cp"),
        ({"cp": 8, "cp_comm": "a2a", "engine": "deepspeed", "pp": 2}, "with a pipeline", "--pp"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(others: dict[str, Any], told: str, where: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        step(**others)
    assert caught.value.where == where


def test_ulysses_shards_states_over_the_ranks_of_a_sequence() -> None:
    """Ranks of a sequence are copies of the weights as data-parallel ones are: states are as small, and activations
    those of a part of each sequence."""
    plain = step("deepspeed", cp=1, zero=3, global_batch=32, seq=8192)
    found = step("deepspeed", cp=8, cp_comm="a2a", zero=3, seq=65536)
    for part in ("optimizer", "gradients"):
        assert found.memory_parts[0][part] == plain.memory_parts[0][part]
    assert found.memory_parts[0]["activations"] == pytest.approx(plain.memory_parts[0]["activations"])
    assert found.step_time_s.value > plain.step_time_s.value  # as many tokens, more pairs of them
