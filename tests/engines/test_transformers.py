"""transformers as a training engine: memory worked out by hand, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

import gnomon
from gnomon.catalog import model_config_path
from gnomon.errors import InputError
from gnomon.load import model as load_model

TOKENS = 8192
STEP: dict[str, Any] = {"on": "H200:1", "seq": 2048, "dtype": "bf16", "engine": "transformers"}


def step(model: str, batch: int = 4, **more: Any) -> Any:
    given = STEP | {"global_batch": batch, "micro_batch": batch, "optimizer": "adamw-bf16"} | more
    return gnomon.simulate_training(model, **given)


def saved(model: str) -> float:
    """Bytes per token of a layer: each norm a wide copy, a narrow one and its result; queries, keys and values, the
    result and a sum per head; gate, its activation, up and their product."""
    config = json.loads(model_config_path(model).read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    attention = 2 * head_dim * (2 * heads + 2 * config["num_key_value_heads"]) + 4 * heads
    return float(2 * (4 + 2 + 2) * hidden + attention + 4 * 2 * config["intermediate_size"])


@pytest.mark.parametrize("model", ["llama-3.2-1b", "llama-3.2-3b", "mistral-7b", "smollm2-1.7b"])
def test_a_step_holds_what_its_modules_save(model: str) -> None:
    """States of six bytes per parameter, all layers, and the loss: its sums and two gradients in fp32."""
    found = load_model(model)
    parts = step(model).memory_parts[0]
    assert parts["weights"] + parts["optimizer"] == pytest.approx(6 * found.parameters, rel=1e-9)
    assert parts["activations"] == pytest.approx(found.layers * saved(model) * TOKENS, rel=1e-9)
    assert parts["working"] == pytest.approx((12 * found.vocab + 8 * found.hidden) * TOKENS, rel=1e-2)
    assert parts["gradients"] == 0


def test_gradients_count_where_they_outlast_a_pass() -> None:
    """With two micro-batches they are there when the second begins; with checkpointing when the pass has ended."""
    p = load_model("llama-3.1-8b").parameters
    assert step("llama-3.1-8b", 1, global_batch=2).memory_parts[0]["gradients"] == pytest.approx(2 * p, rel=1e-9)
    whole = step("llama-3.1-8b", 1, recompute="full", seq=1024)
    assert whole.peak_memory_bytes.value == pytest.approx(8 * p, rel=0.02)


def test_several_chips_hold_buckets_of_gradients() -> None:
    """DDP copies gradients into buckets, which stay."""
    one, eight = (step("llama-3.2-1b", on=f"H200:{chips}", global_batch=4 * chips) for chips in (1, 8))
    p = load_model("llama-3.2-1b").parameters
    assert one.memory_parts[0]["buffers"] == 0
    assert eight.memory_parts[0]["buffers"] == pytest.approx(2 * p, rel=1e-9)
    assert eight.peak_memory_bytes.value - one.peak_memory_bytes.value == pytest.approx(2 * p, rel=1e-9)


def test_fp32_weights_hold_more_and_take_longer() -> None:
    narrow, wide = step("llama-3.2-1b"), step("llama-3.2-1b", optimizer="adamw")
    p = load_model("llama-3.2-1b").parameters
    assert wide.memory_parts[0]["optimizer"] == pytest.approx(8 * p, rel=1e-9)
    assert wide.memory_parts[0]["weights"] == pytest.approx(6 * p, rel=1e-3)
    assert wide.memory_parts[0]["activations"] > narrow.memory_parts[0]["activations"]
    assert wide.step_time_s.value > narrow.step_time_s.value


def test_checkpointing_holds_less_and_takes_longer() -> None:
    none, full = step("qwen3-1.7b"), step("qwen3-1.7b", recompute="full")
    assert full.peak_memory_bytes.value < none.peak_memory_bytes.value
    assert full.step_time_s.value > none.step_time_s.value


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "tensor parallelism": ("llama-3.2-1b", {"on": "H200:2", "tp": 2}, "data parallelism"),
    "sharded states": ("llama-3.2-1b", {"on": "H200:2", "zero": 3, "global_batch": 8}, "ZeRO 3 is not priced"),
    "selective": ("llama-3.2-1b", {"recompute": "selective"}, "does not recompute by selective"),
    "lion": ("llama-3.2-1b", {"optimizer": "lion"}, "lion is not priced"),
    "fp8": ("llama-3.2-1b", {"dtype": "fp8"}, "fp8 is not priced"),
    "experts": ("qwen3-30b-a3b", {}, "experts"),
    "layer norms": ("gpt2-xl", {"seq": 1024}, "layer norms"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_priced_is_refused(case: str) -> None:
    model, given, expected = REFUSED[case]
    with pytest.raises(InputError, match=expected):
        step(model, **given)
