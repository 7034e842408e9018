"""Engines whose runs are published: DeepSpeed, TorchTitan, PyTorch of 2023, Megatron-Bridge's recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engines.plans import config

import gnomon
from gnomon.errors import InputError
from gnomon.load import model as load_model

NAMES = ("megatron@bridge", "torch@2.0", "torchtitan@2024-eager", "torchtitan", "deepspeed@0.5", "deepspeed")
GPT: dict[str, Any] = {"on": "A100-SXM-80GB:64", "seq": 2048, "global_batch": 64, "dtype": "fp16", "recompute": "full"}


def step(model: str, engine: str, **more: Any) -> Any:
    given: dict[str, Any] = {"on": "H100:8", "seq": 4096, "global_batch": 16, "engine": engine, "zero": 1}
    return gnomon.simulate_training(model, **(given | more))


@pytest.mark.parametrize("engine", NAMES)
def test_every_engine_prices_and_plans(engine: str) -> None:
    """A step, and a search whose best plan no step under the same engine beats."""
    one = step("llama-3.2-1b", engine, dtype="bf16")
    assert 0 < one.step_time_s.low < one.step_time_s.value < one.step_time_s.high
    best = gnomon.plan_training(
        "llama-3.2-1b", cluster="H100:8", seq=4096, global_batch=16, engine=engine, dtype="bf16"
    )
    assert best.best.step_time_s.value <= one.step_time_s.value * 1.001


def test_deepspeed_refuses_what_it_does_not_combine() -> None:
    plain = GPT | {"tp": 8, "pp": 2, "sequence_parallel": False}
    step("gpt-18.4b", "deepspeed@0.5", **plain)
    for more, expected in (
        ({"zero": 2}, "ZeRO 2 with a pipeline"),
        ({"schedule": "gpipe"}, "no schedule gpipe"),
        ({"sequence_parallel": True}, "without sequence parallelism"),
        ({"optimizer": "lion"}, "lion is not priced"),
    ):
        with pytest.raises(InputError, match=expected):
            step("gpt-18.4b", "deepspeed@0.5", **(plain | more))


def test_deepspeed_sums_bf16_gradients_in_fp32() -> None:
    """Four bytes per parameter more than fp16, unsharded, and a longer step."""
    plain = GPT | {"tp": 8, "pp": 2, "sequence_parallel": False}
    narrow, wide = (step("gpt-18.4b", "deepspeed@0.5", **(plain | {"dtype": dtype})) for dtype in ("fp16", "bf16"))
    grown = wide.memory_parts[0]["gradients"] / narrow.memory_parts[0]["gradients"]
    assert grown == pytest.approx(3.0)
    assert wide.step_time_s.value > narrow.step_time_s.value


def test_gradients_in_a_pipeline_are_reduced_once() -> None:
    """ZeRO 2 under a pipeline reduces when the last micro-batch is done: as long as ZeRO 1, but for the gathers."""
    one, two = (
        step("llama-3.1-70b", "megatron", on="H100:64", tp=4, pp=4, zero=zero, global_batch=128).step_time_s.value
        for zero in (1, 2)
    )
    assert two == pytest.approx(one, rel=0.03)


@pytest.mark.parametrize("engine", ["deepspeed@0.5", "megatron@2.4"])
def test_heads_of_odd_widths_take_longer(engine: str, tmp_path: Path) -> None:
    """Unfused attention: fewer and wider heads have less to do, so that only their alignment can make them slower."""
    even, odd = (
        step(config(tmp_path, "gpt", 8, heads, width), engine, **GPT | {"sequence_parallel": False, "zero": 0})
        for heads, width in ((16, 104), (16, 108))
    )
    assert odd.step_time_s.value > 1.04 * even.step_time_s.value


def test_alternate_gemms_lie_between_none_and_full() -> None:
    """TorchTitan's checkpointing by operator saves every second GEMM: less than every one, more than the input."""
    none, some, full = (
        step("llama-3.1-8b", "torchtitan", zero=3, recompute=mode) for mode in ("none", "selective", "full")
    )
    every = step("llama-3.1-8b", "torch", zero=3, recompute="selective")
    kept = [one.memory_parts[0]["activations"] for one in (full, some, every, none)]
    assert kept == sorted(kept)
    assert len(set(kept)) == len(kept)
    assert none.step_time_s.value < some.step_time_s.value < full.step_time_s.value


def test_what_is_saved_by_operator() -> None:
    """Per token of a layer: its input, queries, values, gate, the last GEMM, and the result of attention with its sums
    (the first, third, fifth and seventh GEMM of Llama's layer)."""
    model = load_model("llama-3.1-8b")
    found = step("llama-3.1-8b", "torchtitan", zero=3, recompute="selective").memory_parts[0]["activations"]
    per_token = 2 * (4096 + 4096 + 1024 + 14336 + 4096 + 4096) + 4 * 32
    assert found == pytest.approx(model.layers * 4096 * per_token, rel=1e-9)


def test_attention_of_2023_is_slower_the_longer_sequences_are() -> None:
    ratio = [
        step("llama-3.2-1b", "torch@2.0", seq=seq, zero=3).step_time_s.value
        / step("llama-3.2-1b", "torch", seq=seq, zero=3).step_time_s.value
        for seq in (2048, 16384, 65536)
    ]
    assert 1 < ratio[0] < ratio[1] < ratio[2]


def test_recipes_for_speed_hold_less() -> None:
    """Megatron-Bridge keeps weights in fp8 alone, and gradients in 16 bits."""
    plain, bridge = (
        step("llama-3.1-8b", name, dtype="fp8").memory_parts[0] for name in ("megatron", "megatron@bridge")
    )
    assert bridge["gradients"] == pytest.approx(plain["gradients"] / 2)
    assert bridge["weights"] < 0.6 * plain["weights"]
    assert bridge["optimizer"] == plain["optimizer"]


def test_a_step_is_offered_the_target_of_its_own_engine() -> None:
    found = step("llama-3.2-1b", "transformers", zero=0, dtype="bf16", optimizer="adamw-bf16", on="H200:1")
    assert found.targets[0] == "transformers"


def test_stragglers_make_intervals_longer_than_they_make_them_shorter() -> None:
    """Published runs of 2022 and 2023 were late more often than early, and by more."""
    options: dict[str, Any] = {"on": "A100:64", "seq": 2048, "global_batch": 64, "tp": 8, "engine": "deepspeed@0.9"}
    step = gnomon.simulate_training("gpt3-175b", pp=8, sequence_parallel=False, **options).step_time_s
    assert step.high / step.value > (step.value / step.low) ** 1.5
    assert step.value / step.low > 1.05


def test_a_compiled_loss_holds_no_wide_copy_of_the_logits() -> None:
    """In place of fp32 logits, their log-softmax and its gradient there are logits and theirs in bf16."""
    vocab, tokens = 128_256, 8192

    def working(version: str) -> float:
        return step("llama-3.2-1b", version, zero=3, seq=tokens, recompute="full").memory_parts[0]["working"]

    gone = working("torchtitan@2024") - working("torchtitan@2025")
    assert gone == pytest.approx((4 + 4 + 4 - 2 - 2) * vocab * tokens)
