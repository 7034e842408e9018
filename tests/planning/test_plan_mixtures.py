"""The search over mixtures, networks of unlike layers and long sequences, against running every plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.plans import peaks, search, some

from gnomon.api.plan_training import plan_training
from gnomon.planning.training.search import Search
from gnomon.planning.training.step import step_bound_s, step_timeline, usable_bytes
from gnomon.search.quickest import quickest

MIXTRAL: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 512,
    "intermediate_size": 4096,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 7,
    "first_k_dense_replace": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "q_lora_rank": 192,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
}
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
}
CASES = {"mixtral": (MIXTRAL, 2048), "deepseek": (DEEPSEEK, 2048), "llama, long": (LLAMA, 16384)}


def network(folder: Path, name: str) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(CASES[name][0]))
    return str(path)


def drawn(folder: Path, name: str, chips: str, quantile: float) -> Search:
    """Some plans on chips with as much memory as a part of them needs."""
    found = some(search(network(folder, name), chips, seq=CASES[name][1], batch=8), 1500, seed=len(chips))
    usable = np.quantile(peaks(found), quantile)
    held = (usable + found.traits.runtime_bytes) / (1 - found.traits.spare)
    pool = replace(found.pool, chip=replace(found.pool.chip, memory_bytes=float(held) * (1 + 1e-9)))
    return replace(found, bound=replace(found.bound, pool=pool))


@pytest.mark.heavy
@pytest.mark.battery(12)
@pytest.mark.parametrize("quantile", [0.2, 1.0])
@pytest.mark.parametrize("chips", ["H100:8", "A100:12", "H200:32"])
@pytest.mark.parametrize("name", CASES)
def test_the_quickest_of_all_that_fit(tmp_path: Path, name: str, chips: str, quantile: float) -> None:
    found = drawn(tmp_path, name, chips, quantile)
    every = peaks(found)
    np.testing.assert_allclose(found.peak_bytes, every, rtol=1e-12)
    fits = every <= usable_bytes(found.pool, found.traits)
    times = np.array([step_timeline(found.figures, row, found.traits).step_s for row in range(found.grid.size)])
    bounds = step_bound_s(found.figures, found.traits)
    assert np.all(bounds <= times)
    assert np.median(bounds / times) > 0.95
    answer = quickest(found.bounds_s, found.step_s)
    assert answer.value == times[fits].min()


@pytest.mark.parametrize("name", CASES)
def test_the_work_of_a_step_does_not_depend_on_the_plan(tmp_path: Path, name: str) -> None:
    found = search(network(tmp_path, name), "H100:8", seq=CASES[name][1], batch=8)
    flops = found.figures.model_flops
    np.testing.assert_allclose(flops, flops[0], rtol=1e-9)


def test_spaces_hold_every_degree(tmp_path: Path) -> None:
    found = search(network(tmp_path, "deepseek"), "H100:8", batch=8).grid
    assert set(found.ep.tolist()) == {1, 2, 4, 8}
    assert set(found.pp.tolist()) == {1, 2, 4, 7}
    assert np.all((found.copies * found.tp) % (found.ep * found.expert_tp) == 0)
    assert set(found.cp.tolist()) == {1}, "short sequences are not cut"
    long = search(network(tmp_path, "llama, long"), "H100:8", seq=16384, batch=8).grid
    assert set(long.cp.tolist()) == {1, 2, 4}


def test_more_expert_ranks_hold_less(tmp_path: Path) -> None:
    """Weights of experts lie on more ranks, and every rank's states are no more."""
    found = search(network(tmp_path, "mixtral"), "H100:8", batch=8)
    alone = (found.grid.tp == 1) & (found.grid.pp == 1) & (found.grid.dp == 8) & (found.grid.zero == 0)
    held = [float(found.figures.parameters[alone & (found.grid.ep == ep)][0]) for ep in (1, 2, 4, 8)]
    experts = 8 * 3 * 512 * 1024
    assert held == [held[0] - experts + experts / ep for ep in (1, 2, 4, 8)]


@pytest.mark.heavy
def test_a_plan_of_a_mixture() -> None:
    answer = plan_training("mixtral-8x7b", cluster="H100:64", seq=4096, global_batch=256)
    assert answer.best.fits
    assert answer.best.plan.strategy.ep > 1
    assert "--expert-model-parallel-size" in answer.command
