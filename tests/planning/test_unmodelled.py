"""What is given and moves no figure is listed: settings one by one and together, techniques, fields of a cluster."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

import gnomon
from gnomon.engines import engine
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.planning.unmodelled import figures
from gnomon.spec.answers import Fit, Prediction, ServingReport

SETTINGS: tuple[tuple[str, Any], ...] = (
    ("enforce_eager", True),
    ("max_cudagraph_capture_size", 64),
    ("max_num_seqs", 128),
    ("max_num_batched_tokens", 4096),
    ("gpu_memory_utilization", 0.8),
    ("async_scheduling", False),
    ("max_model_len", 8192),
    ("block_size", 32),
)
PAIRS = list(itertools.combinations(SETTINGS, 2))
STEPS: tuple[dict[str, Any], ...] = (
    {"phase": "decode"},
    {"phase": "decode", "batch": 100, "context": 500},
    {"phase": "prefill", "tokens": 3000},
)


def listed(answer: Prediction | Fit) -> set[str]:
    return {one.option.partition("=")[0] for one in answer.not_modelled}


@pytest.mark.battery(8)
@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "+".join(name for name, _ in pair))
def test_of_two_settings_those_that_move_nothing_are_listed(pair: Any, step: dict[str, Any]) -> None:
    """What is listed can be left out, all of it; what is not listed cannot, or says what the engine does anyway."""
    given = dict(pair)

    def ask(settings: dict[str, Any]) -> Prediction:
        return gnomon.predict("llama-3.1-8b", on="H100", settings=settings, **step)

    found = ask(given)
    idle = listed(found)
    kept = {name: value for name, value in given.items() if name not in idle}
    assert figures(ask(kept)) == figures(found)
    for name in kept:
        fewer = {other: value for other, value in kept.items() if other != name}
        assert figures(ask(fewer)) != figures(found), f"{name} is neither listed nor does it act"


def test_what_the_engine_does_anyway_is_not_listed() -> None:
    usual = engine("vllm").settings({}, load_model("llama-3.1-8b"), parse_pool("H100"))
    given = {name: usual[name] for name, _ in SETTINGS}
    assert gnomon.predict("llama-3.1-8b", on="H100", settings=given).not_modelled == ()


@pytest.mark.parametrize("eager", [{}, {"enforce_eager": True}])
def test_a_load_lists_what_another_setting_leaves_nothing_to_say(eager: dict[str, Any]) -> None:
    settings = eager | {"max_cudagraph_capture_size": 64}
    load: dict[str, Any] = {"input": 50, "output": 5, "requests": 3}
    found = gnomon.simulate_serving("llama-3.1-8b", on="H100", settings=settings, **load)
    assert ("max_cudagraph_capture_size=64" in [one.option for one in found.not_modelled]) == bool(eager)


LOAD: dict[str, Any] = {"rate": 20, "input": 400, "output": 20, "requests": 40}
TIMES = ("ttft_s", "tpot_s", "e2e_s", "queue_s", "makespan_s", "energy_j")
LORA = {"enable_lora": True, "max_loras": 4, "max_lora_rank": 64, "max_cpu_loras": 8}
UNDER_LOAD: dict[str, tuple[dict[str, Any], ...]] = {
    "vllm": (
        {"enable_lora": True}, LORA, LORA | {"scheduling_policy": "priority"}, {"scheduling_policy": "priority"},
        {"enable_prefix_caching": False}, {"kv_offloading_size": 8}, {"async_scheduling": False},
        {"enforce_eager": True}, {"front_end": "in_process"}, {"max_num_seqs": 1},
    ),
    "sglang": (
        {"disable_overlap_schedule": True}, {"disable_cuda_graph": True},
        {"max_running_requests": 1}, {"disable_radix_cache": True}, {"schedule_policy": "lpm"},
        {"disable_radix_cache": True, "schedule_policy": "lpm"}, {"attention_backend": "triton"},
        {"enable_mixed_chunk": True},
    ),
    "trtllm": (
        {"enable_block_reuse": False}, {"disable_overlap_scheduler": True}, {"served_by": "trtllm-bench"},
        {"max_batch_size": 1},
    ),
}  # fmt: skip
"""Settings that only some loads have something to say on, or that act under each, alone and together."""


@pytest.mark.heavy
@pytest.mark.battery(2)
@pytest.mark.parametrize(
    ("name", "given"), [(name, given) for name, each in UNDER_LOAD.items() for given in each], ids=str
)
def test_settings_of_a_load_change_its_times_or_are_listed(name: str, given: dict[str, Any]) -> None:
    """Neither the KV blocks that adapters leave, nor their number, is a time: settings that change those alone are
    listed, all of them."""

    def ask(settings: dict[str, Any]) -> ServingReport:
        return gnomon.simulate_serving("llama-3.2-1b", on="H100", engine=name, settings=settings, **LOAD)

    found, plain = ask(given), ask({})
    same = all(getattr(found, each) == pytest.approx(getattr(plain, each), rel=1e-9) for each in TIMES)
    options = {one.option.partition("=")[0] for one in found.not_modelled}
    assert options == (set(given) if same else set())


@pytest.mark.parametrize(
    ("name", "given"), [("sglang", {"disable_radix_cache": True}), ("trtllm", {"enable_block_reuse": False})], ids=str
)
def test_a_cache_that_prompts_find_something_in_is_not_listed(name: str, given: dict[str, Any]) -> None:
    load = LOAD | {"prefix": "groups=2,tokens=4096"}
    found = gnomon.simulate_serving("llama-3.2-1b", on="H100", engine=name, settings=given, **load)
    plain = gnomon.simulate_serving("llama-3.2-1b", on="H100", engine=name, **load)
    assert found.ttft_s != plain.ttft_s and not found.cache_hit_rate and plain.cache_hit_rate
    assert [one.option for one in found.not_modelled] == []


def test_why_a_setting_has_no_effect_is_said_of_a_step_and_of_a_load() -> None:
    given = {"scheduling_policy": "priority"}
    step = gnomon.predict("llama-3.2-1b", on="H100", settings=given)
    load = gnomon.simulate_serving("llama-3.2-1b", on="H100", settings=given, **LOAD)
    assert [one.why for one in step.not_modelled] == ["one step has no queue"]
    assert [one.why for one in load.not_modelled] == ["no request of this load has a priority"]


@pytest.mark.parametrize("name", UNDER_LOAD)
def test_no_load_is_told_that_only_a_load_has_an_effect(name: str) -> None:
    known, deployment = deploy(load_model("llama-3.2-1b"), parse_pool("H100"), engine=name)
    for option in deployment.settings:
        why = [one.why for one in known.not_modelled({option: 1}, deployment, [option], under_load=True)]
        assert not any("simulated load" in each or "one step" in each for each in why), option


@pytest.mark.parametrize("technique", ["kv-swap", "kv-swap:turn=100", "int4-weights", "dequantize-on-the-fly"])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_technique_that_changes_no_figure_is_listed(technique: str, step: dict[str, Any]) -> None:
    found = gnomon.predict("llama-3.1-8b", on="H100", techniques=[technique], **step)
    same = figures(found) == figures(gnomon.predict("llama-3.1-8b", on="H100", **step))
    assert (f"--with {technique}" in [one.option for one in found.not_modelled]) == same
    assert same == (technique.startswith("kv-swap") and step["phase"] == "prefill")


FABRICS: tuple[dict[str, Any], ...] = (
    {"oversubscription": 1, "pod_nodes": 1},
    {"oversubscription": 4, "pod_nodes": 1000},
    {"oversubscription": 4, "pod_nodes": 1},
    {"oversubscription": 4, "pod_nodes": 2},
    {"oversubscription": 2},
)
ON: tuple[tuple[str, dict[str, int]], ...] = (
    ("llama-3.1-8b", {"tp": 8, "dp": 2}),
    ("llama-3.1-8b", {"tp": 8}),
    ("llama-3.1-8b", {"tp": 8, "pp": 2}),
    ("qwen3-30b-a3b", {"tp": 4, "dp": 4, "ep": 16}),
)


@pytest.mark.parametrize("fabric", FABRICS, ids=str)
@pytest.mark.parametrize(("model", "degrees"), ON, ids=str)
def test_a_network_that_no_step_uses_is_listed(
    tmp_path: Path, model: str, degrees: dict[str, int], fabric: dict[str, Any]
) -> None:
    def ask(**fields: Any) -> Prediction:
        path = tmp_path / "cluster.yaml"
        path.write_text(yaml.safe_dump({"schema": "gnomon.cluster/1", "chip": "H100", "count": 16} | fields))
        return gnomon.predict(model, on=str(path), batch=64, context=100, **degrees)

    found, plain = ask(**fabric), ask()
    fields = {one.option.rpartition(" ")[2] for one in found.not_modelled}
    assert fields == (set(fabric) if figures(found) == figures(plain) else set())
    assert not plain.not_modelled
