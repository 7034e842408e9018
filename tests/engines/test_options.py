"""vLLM's settings: defaults, ranges, cross-checks, captured sizes and flags."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon import catalog
from gnomon.engines.vllm.captures import captured_sizes
from gnomon.engines.vllm.options import OPTIONS, fill, flags
from gnomon.errors import InputError, UnknownNameError
from gnomon.load import model as load_model
from gnomon.spec import Model, Pool


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model("llama-3.1-8b")


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(chip=catalog.chip("H100"), count=1, per_node=8)


def small(pool: Pool, name: str, gib: float) -> Pool:
    from dataclasses import replace

    return replace(pool, chip=replace(pool.chip, name=name, memory_bytes=gib * 1024**3))


def test_defaults_of_a_large_chip(model: Model, pool: Pool) -> None:
    assert fill({}, model, pool) == {
        "max_model_len": 131072,
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 8192,
        "gpu_memory_utilization": 0.92,
        "block_size": 16,
        "decode_context_parallel_size": 1,
        "all2all_backend": "allgather_reducescatter",
        "expert_popularity": "uniform",
        "enable_eplb": False,
        "num_redundant_experts": 0,
        "moe_backend": "auto",
        "moe_activation": "auto",
        "async_scheduling": True,
        "enforce_eager": False,
        "enable_prefix_caching": True,
        "max_cudagraph_capture_size": 512,
        "scheduling_policy": "fcfs",
        "enable_lora": False,
        "max_loras": 1,
        "max_lora_rank": 16,
        "max_cpu_loras": 1,
        "kv_offloading_size": 0.0,
        "cpu_offload_gb": 0.0,
        "offload_backend": "auto",
        "offload_group_size": 0,
        "offload_num_in_group": 1,
        "offload_prefetch_step": 1,
        "speculative_method": "none",
        "num_speculative_tokens": 0,
        "draft_acceptance": "",
        "draft_parameters": 0.0,
        "draft_model": "",
        "front_end": "http",
    }


@pytest.mark.parametrize(("name", "gib"), [("L4", 22.0), ("A100-SXM-80GB", 79.3)])
def test_smaller_batches_on_small_chips_and_the_a100(model: Model, pool: Pool, name: str, gib: float) -> None:
    settings = fill({}, model, small(pool, name, gib))
    assert (settings["max_num_seqs"], settings["max_num_batched_tokens"]) == (256, 2048)


def test_filling_twice_changes_nothing(model: Model, pool: Pool) -> None:
    for given in ({}, {"enforce_eager": True}, {"max_cudagraph_capture_size": 100}, {"max_model_len": 512}):
        once = fill(given, model, pool)
        assert fill(once, model, pool) == once


def test_default_sequences_never_exceed_the_given_tokens(model: Model, pool: Pool) -> None:
    assert fill({"max_num_batched_tokens": 512}, model, pool)["max_num_seqs"] == 512


def test_default_tokens_never_exceed_what_the_sequences_can_hold(model: Model, pool: Pool) -> None:
    given = {"max_num_seqs": 4, "max_model_len": 100}
    assert fill(given, model, pool)["max_num_batched_tokens"] == 400


def test_none_means_the_default(model: Model, pool: Pool) -> None:
    assert fill({"max_num_seqs": None}, model, pool) == fill({}, model, pool)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"--max-num-seqs": "64"}, ("max_num_seqs", 64)),
        ({"MAX_NUM_SEQS": 64.0}, ("max_num_seqs", 64)),
        ({"max_num_batched_tokens": "4,096"}, ("max_num_batched_tokens", 4096)),
        ({"async-scheduling": "off"}, ("async_scheduling", False)),
        ({"enforce_eager": "Yes"}, ("enforce_eager", True)),
        ({"gpu_memory_utilization": "0.5"}, ("gpu_memory_utilization", 0.5)),
    ],
)
def test_texts_are_understood(model: Model, pool: Pool, given: dict[str, Any], expected: tuple[str, Any]) -> None:
    settings = fill(given, model, pool)
    assert settings[expected[0]] == expected[1]
    assert type(settings[expected[0]]) is type(expected[1])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_num_seqs", 0),
        ("max_num_seqs", -1),
        ("max_num_seqs", 1.5),
        ("max_num_seqs", "many"),
        ("max_num_seqs", True),
        ("max_num_seqs", float("nan")),
        ("max_num_seqs", float("inf")),
        ("max_num_seqs", 2**40),
        ("max_num_seqs", [1]),
        ("max_model_len", 131073),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.1),
        ("gpu_memory_utilization", "nan"),
        ("block_size", 8),
        ("block_size", 24),
        ("async_scheduling", "maybe"),
        ("enforce_eager", 2),
        ("max_cudagraph_capture_size", 0),
    ],
)
def test_bad_values_name_the_setting(model: Model, pool: Pool, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"setting {name}"):
        fill({name: value}, model, pool)


def test_tokens_below_sequences_are_refused(model: Model, pool: Pool) -> None:
    with pytest.raises(InputError, match=r"32 is less than max_num_seqs 64.*Set max_num_batched_tokens to at least 64"):
        fill({"max_num_seqs": 64, "max_num_batched_tokens": 32}, model, pool)


def test_unknown_names_get_the_nearest(model: Model, pool: Pool) -> None:
    with pytest.raises(UnknownNameError, match="max_num_seqs"):
        fill({"max_num_seq": 1}, model, pool)


def test_degrees_are_no_settings(model: Model, pool: Pool) -> None:
    with pytest.raises(InputError, match="--tp"):
        fill({"tensor_parallel_size": 2}, model, pool)


def test_captured_sizes_of_the_defaults(model: Model, pool: Pool) -> None:
    sizes = captured_sizes(fill({}, model, pool))
    assert sizes == [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]


def test_no_graphs_when_eager(model: Model, pool: Pool) -> None:
    assert captured_sizes(fill({"enforce_eager": True}, model, pool)) == []


def test_an_odd_token_budget_is_captured(model: Model, pool: Pool) -> None:
    settings = fill({"max_num_seqs": 60, "max_num_batched_tokens": 100}, model, pool)
    assert captured_sizes(settings)[-2:] == [96, 100]


def test_flags_leave_out_what_vllm_would_choose(model: Model, pool: Pool) -> None:
    words = " ".join(flags(fill({"max_num_seqs": 64}, model, pool), model, pool))
    expected = "--max-model-len 131072 --max-num-seqs 64 --max-num-batched-tokens 8192 --gpu-memory-utilization 0.92"
    assert words == expected


def test_flags_say_what_differs(model: Model, pool: Pool) -> None:
    given = {"enforce_eager": True, "async_scheduling": False, "enable_prefix_caching": False, "block_size": 32}
    words = flags(fill(given, model, pool), model, pool)
    expected = "--block-size 32 --no-async-scheduling --enforce-eager --no-enable-prefix-caching"
    assert " ".join(words[8:]) == expected


def test_every_option_has_its_words() -> None:
    for option in OPTIONS:
        assert option.flag == option.written or option.flag == "--" + option.name.replace("_", "-")
        assert option.what


def test_what_takes_requests_in_is_no_flag(model: Model, pool: Pool) -> None:
    settings = fill({"front_end": "in_process"}, model, pool)
    assert flags(settings, model, pool) == flags(fill({}, model, pool), model, pool)
