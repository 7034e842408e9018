"""Gradients summed in 16 bits: bytes by hand, and what is sent."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError

LOAD: dict[str, Any] = {"model": "gpt-3.6b", "on": "A100:8", "seq": 2048, "global_batch": 8, "recompute": "full"}
THEN: dict[str, Any] = LOAD | {"engine": "megatron@2.4", "sequence_parallel": False}
LATER: dict[str, Any] = LOAD | {"engine": "megatron@3.0"}
HALF = ["half-gradients"]


def parts(given: dict[str, Any], **more: Any) -> tuple[dict[str, float], float]:
    """Bytes per parameter of a rank, which holds all of them, and the parameters."""
    found = gnomon.simulate_training(**given, **more)
    parameters = found.step.job.model.parameters
    return {name: size / parameters for name, size in found.memory_parts[0].items()}, parameters


@pytest.mark.parametrize(("dtype", "gradients"), [("fp16", 6.0), ("bf16", 4.0)])
def test_2_4_keeps_wide_copies_of_gradients_in_fp16(dtype: str, gradients: float) -> None:
    found, _ = parts(THEN, dtype=dtype)
    assert (found["weights"], found["gradients"], found["optimizer"]) == pytest.approx((2, gradients, 12), rel=1e-3)


def test_an_update_s_copies_take_the_place_of_activations() -> None:
    plain, parameters = parts(LATER, dtype="fp16")
    half, _ = parts(LATER, dtype="fp16", techniques=HALF)
    assert (plain["gradients"], half["gradients"]) == pytest.approx((4, 2), rel=1e-3)
    assert half["activations"] == plain["activations"]
    assert half["activations"] + half["working"] == pytest.approx(4, rel=1e-3)
    assert parameters > 3e9
    full = LATER | {"recompute": "none", "micro_batch": 4, "global_batch": 32}
    (more, _), (rest, _) = parts(full, dtype="fp16"), parts(full, dtype="fp16", techniques=HALF)
    assert rest["activations"] > 4
    assert rest["working"] == more["working"]


def test_sharded_states_have_their_share_of_the_copies() -> None:
    half, _ = parts(LATER, dtype="fp16", zero=1, techniques=HALF)
    assert half["activations"] + half["working"] == pytest.approx(4 / 8, rel=1e-3)
    assert half["optimizer"] == pytest.approx(12 / 8, rel=1e-3)


def test_gradients_of_16_bits_are_reduced_sooner() -> None:
    nodes = LATER | {"on": "A100:16", "global_batch": 16}
    plain, half = (gnomon.simulate_training(**nodes, dtype="fp16", techniques=names) for names in ([], HALF))
    reduced = [float(one.step.figures.reduce_s[0]) for one in (plain, half)]
    assert reduced[1] < 0.6 * reduced[0]
    assert half.step_time_s.value < plain.step_time_s.value
    assert half.step.flops == plain.step.flops


def test_states_on_the_host_take_their_copies_along() -> None:
    alone = THEN | {"on": "A100:1"}
    found, _ = parts(alone, dtype="fp16", techniques=["offload-optimizer"])
    assert found["gradients"] < 2
    half, _ = parts(alone, dtype="fp16", techniques=["offload-optimizer:share=0.5"])
    assert half["optimizer"] == pytest.approx(12 / 2, rel=1e-3)
    assert 4 / 2 < half["gradients"] < 6 / 2 + found["gradients"]


def test_weights_in_fp32_have_no_such_sums() -> None:
    with pytest.raises(InputError, match="half-gradients does not apply"):
        gnomon.simulate_training(**LATER, dtype="fp32", techniques=HALF)
