"""What vLLM leaves for the cache: parts that add up, and blocks against those it reported itself."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gnomon.engines import Deployment, Engine
from gnomon.engines.base import MemoryUse
from gnomon.engines.vllm.memory import NULL_BLOCKS
from gnomon.engines.vllm.reserve import visible_bytes
from gnomon.engines.vllm.weights import weight_bytes
from gnomon.errors import DoesNotFitError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.load.families import read_family
from gnomon.load.fields import Fields
from gnomon.spec import Model, Strategy
from gnomon.spec.narrowed import in_format

MEASURED = Path("measurements/h200-2026-11-15")
BLOCKS_ERROR = 0.0015
"""The 1B and 8B at 92% and both mixtures chose the reserve's figures; the 3B and all of `starts.json` but the fp8 one
check them."""
BLOCKS = {
    "llama-3.2-1b": 256_554,
    "llama-3.2-3b": 71_111,
    "qwen3-moe-12l": 301_109,
    "llama-3.1-8b": 57_489,
    "qwen3-30b-a3b": 46_542,
}


def read(name: str) -> Any:
    return json.loads((Path(__file__).parents[2] / MEASURED / name).read_text())


@cache
def found(name: str) -> tuple[Model, dict[str, Any]]:
    """A model that was measured, and the settings vLLM reported for it."""
    rows = read("engine.json")
    if name in rows["models"]:
        return read_family(Fields(rows["models"][name], name)), rows["settings"][name]
    return load_model(name), read(f"verify-{name}.json")["settings"]


def deployed(
    model: str | Model, on: str = "H200", tp: int = 1, dtype: str = "bf16", kv_dtype: str = "bf16", **settings: Any
) -> tuple[Engine, Deployment]:
    chosen = load_model(model) if isinstance(model, str) else model
    pool = parse_pool(f"{on}:{tp}")
    given = {"max_model_len": 16384} | settings
    return deploy(chosen, pool, strategy=Strategy(tp=tp), dtype=dtype, kv_dtype=kv_dtype, settings=given)


def use(*args: Any, **words: Any) -> MemoryUse:
    engine, deployment = deployed(*args, **words)
    return engine.memory(deployment)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_against_the_measured_ones(name: str) -> None:
    model, settings = found(name)
    assert settings["kv_blocks"] == BLOCKS[name]
    assert settings["max_model_len"] == 16384
    blocks = use(model).kv_blocks + NULL_BLOCKS
    assert blocks == pytest.approx(BLOCKS[name], rel=BLOCKS_ERROR)


UNSEEN = ("qwen2.5-14b", "deepseek-v2-lite")
"""Measured when the figures stood: a dense model on the first runner, and a mixture with latents on the second."""
STARTS = [row for row in read("starts.json")["rows"] if row["started"] or "longest_tokens" in row]


@pytest.mark.parametrize("row", STARTS, ids=lambda row: f"{row['model']} {row['gpu_memory_utilization']}")
def test_starts_at_the_edge(row: dict[str, Any]) -> None:
    share, longest = row["gpu_memory_utilization"], row["max_model_len"]
    memory = use(row["model"], dtype=row["dtype"], gpu_memory_utilization=share, max_model_len=longest)
    blocks = row.get("kv_blocks") or row["longest_tokens"] // 16
    if row["model"] not in UNSEEN:
        assert memory.kv_blocks + NULL_BLOCKS == pytest.approx(blocks, rel=BLOCKS_ERROR)
    assert (memory.longest(longest) == longest) == row["started"]
    assert abs(memory.kv_blocks + NULL_BLOCKS - blocks) * memory.block_bytes < memory.slack_bytes


@pytest.mark.parametrize("name", BLOCKS)
def test_defaults_are_those_vllm_reported(name: str) -> None:
    model, reported = found(name)
    settings = deployed(model)[1].settings
    shared = {"gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "async_scheduling"}
    assert {key: settings[key] for key in shared} == {key: reported[key] for key in shared}
    assert settings["block_size"] == reported["block_tokens"]


@pytest.mark.parametrize("on", ["H100", "H200"])
@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_parts_add_up_to_what_is_usable(on: str, tp: int, dtype: str) -> None:
    memory = use("llama-3.1-8b", on, tp, dtype, gpu_memory_utilization=0.8)
    assert set(memory.parts) == {"weights", "activations", "runtime", "kv"}
    assert all(size > 0 for size in memory.parts.values())
    assert sum(memory.parts.values()) == pytest.approx(memory.usable_bytes, rel=1e-12)
    assert memory.usable_bytes == pytest.approx(0.8 * visible_bytes(parse_pool(on).chip))
    assert 0.78 * memory.total_bytes < memory.usable_bytes < 0.8 * memory.total_bytes
    taken = (memory.kv_blocks + NULL_BLOCKS) * 16 * memory.kv_bytes_per_token
    assert 0 <= memory.parts["kv"] - taken < 16 * memory.kv_bytes_per_token


def test_what_does_not_fit_has_no_blocks() -> None:
    memory = use("llama-3.1-70b", "H100")
    assert memory.parts["kv"] == 0
    assert memory.kv_blocks <= 0
    assert memory.parts["weights"] > memory.usable_bytes
    engine, deployment = deployed("llama-3.1-70b", "H100")
    with pytest.raises(DoesNotFitError, match=r"0 cached tokens on 1 x H100.*gnomon fit"):
        engine.limits(deployment)


def test_one_token_short_of_the_context_does_not_fit() -> None:
    model, room = "llama-3.1-8b", use("llama-3.1-8b", gpu_memory_utilization=0.15)
    held = room.kv_blocks * 16
    assert 16384 < held < 131072
    engine, enough = deployed(model, gpu_memory_utilization=0.15, max_model_len=held)
    assert engine.limits(enough).kv_blocks == room.kv_blocks
    engine, short = deployed(model, gpu_memory_utilization=0.15, max_model_len=held + 1)
    with pytest.raises(DoesNotFitError, match=f"{held:,} cached tokens"):
        engine.limits(short)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b"])
def test_weights_are_at_least_the_parameters(name: str) -> None:
    model = load_model(name)
    assert weight_bytes(model, Strategy()) == 2 * model.parameters
    for tp in (2, 4, 8):
        together = tp * weight_bytes(model, Strategy(tp=tp))
        assert 2 * model.parameters <= together < 2.2 * model.parameters
    narrow = weight_bytes(in_format(model, "fp8"), Strategy())
    assert model.parameters < narrow < 1.5 * model.parameters


def test_copied_kv_heads_weigh() -> None:
    model = load_model("qwen3-30b-a3b")
    # Four key-value heads on eight ranks: four copies of keys and values of 128 in 48 layers, seven routers and seven
    # sets of norms: two of the stream and two of a head's 128 channels in a layer, and the last one.
    norms = 48 * (2 * 2048 + 2 * 128) + 2048
    extra = 48 * 4 * 2 * 128 * 2048 + 48 * 7 * 128 * 2048 + 7 * norms
    assert 8 * weight_bytes(model, Strategy(tp=8)) == 2 * (model.parameters + extra)
    assert use(model, tp=8).kv_bytes_per_token == use(model, tp=4).kv_bytes_per_token


def test_a_token_of_cache_by_hand() -> None:
    assert use("llama-3.1-8b").kv_bytes_per_token == 32 * 2 * 8 * 128 * 2
    assert use("llama-3.1-8b", kv_dtype="fp8").kv_bytes_per_token == 32 * 2 * 8 * 128
    assert use("llama-3.1-8b", tp=4).kv_bytes_per_token == 32 * 2 * 2 * 128 * 2


def test_more_of_anything_leaves_less_cache() -> None:
    base = use("llama-3.1-8b").kv_blocks
    assert use("llama-3.1-8b", gpu_memory_utilization=0.95).kv_blocks > base
    assert use("llama-3.1-8b", dtype="fp8").kv_blocks > base
    assert use("llama-3.1-8b", kv_dtype="fp8").kv_blocks > 1.9 * base
    assert use("llama-3.1-8b", tp=2).kv_blocks > 2 * base
    assert use("llama-3.1-8b", max_num_batched_tokens=65536).kv_blocks < base
    assert use("llama-3.1-8b", max_num_seqs=4096).kv_blocks < base
    assert use("llama-3.1-8b", "H100").kv_blocks < base
    assert use("llama-3.1-8b", block_size=32).kv_blocks == pytest.approx(base / 2, abs=1)
