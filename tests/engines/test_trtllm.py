"""TensorRT-LLM: options and their YAML, captured sizes, memory, formats, degrees, fusion and launch commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

import gnomon
from gnomon.engines import engine, operations_of
from gnomon.engines.trtllm.graphs import UnpaddedHost, batch_sizes
from gnomon.engines.trtllm.options import BY_NAME, OPTIONS, captured_sizes, fill
from gnomon.engines.trtllm.reuse import ReusedBlocks
from gnomon.engines.trtllm.scheduler import InflightBatching
from gnomon.errors import DoesNotFitError, InputError, UnknownNameError
from gnomon.load import model as load_model
from gnomon.load.deployments import deploy
from gnomon.load.fleet import parse_pool
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.spec import EngineChoice, Plan, Strategy

MODEL, POOL = load_model("llama-3.1-8b"), parse_pool("H100")
LOAD: dict[str, Any] = {"rate": 20, "input": 400, "output": 40, "requests": 80}


def made(on: str = "H100", name: str = "llama-3.1-8b", **options: Any) -> Any:
    settings = {"max_seq_len": 4096, **options.pop("settings", {})}
    return deploy(load_model(name), parse_pool(on), engine="trtllm", settings=settings, **options)


def plan(**changes: Any) -> Plan:
    settings = {"max_seq_len": 4096, "enable_chunked_prefill": True, "cuda_graph_enable_padding": True}
    usual = Plan(
        model="llama-3.1-8b", chip="H100-SXM-80GB", replicas=1, strategy=Strategy(), dtype="bf16",
        engine=EngineChoice(name="trtllm", settings=settings),
    )  # fmt: skip
    return replace(usual, **changes)


def test_defaults_are_those_of_the_source() -> None:
    """`TorchLlmArgs`, `KvCacheConfig`, `SchedulerConfig` and `CudaGraphConfig` of 1.2."""
    settings = fill({}, MODEL, POOL)
    assert (settings["max_batch_size"], settings["max_num_tokens"], settings["max_seq_len"]) == (2048, 8192, 131072)
    assert (settings["tokens_per_block"], settings["kv_cache_free_gpu_memory_fraction"]) == (32, 0.9)
    assert settings["capacity_scheduler_policy"] == "GUARANTEED_NO_EVICT"
    assert settings["enable_block_reuse"] and not settings["enable_chunked_prefill"]
    assert not settings["disable_overlap_scheduler"] and not settings["cuda_graph_enable_padding"]
    assert settings["cuda_graph_max_batch_size"] == 128


@pytest.mark.parametrize(
    ("largest", "padded", "sizes"),
    [
        (128, False, [*range(1, 33), 64, 128]),
        (128, True, [1, 2, 4, *range(8, 129, 8)]),
        (1024, True, [1, 2, 4, *range(8, 129, 8), 256, 512, 1024]),
        (600, True, [1, 2, 4, *range(8, 129, 8), 256, 512, 600]),
        (20, False, list(range(1, 21))),
        (1, True, [1]),
    ],
)
def test_captured_sizes(largest: int, padded: bool, sizes: list[int]) -> None:
    assert batch_sizes(largest, padded) == sizes


def test_captured_sizes_end_at_the_batch() -> None:
    given = {"max_batch_size": 100, "cuda_graph_enable_padding": True}
    assert captured_sizes(fill(given, MODEL, POOL))[-2:] == [96, 100]
    assert captured_sizes(fill({"max_batch_size": 100}, MODEL, POOL))[-1] == 64
    listed = fill({"cuda_graph_batch_sizes": [8, 1, 64]}, MODEL, POOL)
    assert captured_sizes(listed) == [1, 8, 64] and listed["cuda_graph_max_batch_size"] == 64
    assert captured_sizes(fill({"cuda_graph_max_batch_size": 0}, MODEL, POOL)) == []


def test_names_of_the_yaml_are_understood() -> None:
    given = {
        "kv_cache_config.enable_block_reuse": "false",
        "scheduler_config.capacity_scheduler_policy": "MAX_UTILIZATION",
        "kv_cache_config.free_gpu_memory_fraction": 0.5,
        "--max-batch-size": "64",
    }
    settings = fill(given, MODEL, POOL)
    assert not settings["enable_block_reuse"] and settings["max_batch_size"] == 64
    assert settings["capacity_scheduler_policy"] == "MAX_UTILIZATION"
    assert settings["kv_cache_free_gpu_memory_fraction"] == 0.5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"max_batch_sise": 4}, "max_batch_size"),
        ({"tp_size": 2}, "--tp"),
        ({"enable_attention_dp": True}, "--dp"),
        ({"speculative_config": {}}, "speculative decoding is not simulated"),
        ({"max_num_tokens": 100}, "less than max_batch_size"),
        ({"max_num_tokens": 2060, "enable_chunked_prefill": True}, "no chunk of a block"),
        ({"max_seq_len": 10**6}, "more than the 131,072"),
        ({"kv_cache_free_gpu_memory_fraction": 1.5}, "a share above 0"),
        ({"cuda_graph_batch_sizes": "1 x"}, "whole numbers"),
        ({"cuda_graph_batch_sizes": "1 8", "cuda_graph_max_batch_size": 9}, "not the largest"),
        ({"capacity_scheduler_policy": "STATIC_BATCH"}, "one of GUARANTEED_NO_EVICT"),
        ({"context_chunking_policy": "EQUAL_PROGRESS"}, "one of FIRST_COME_FIRST_SERVED"),
        ({"max_beam_width": 2}, "between 1 and 1"),
        ({"enable_block_reuse": "maybe"}, "true or false"),
    ],
)
def test_what_is_wrong_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        fill(given, MODEL, POOL)
    assert told in f"{caught.value} {caught.value.hint}"


def test_a_version_that_is_not_known_is_refused() -> None:
    assert engine("trtllm@1.2").version == "1.2.1"
    with pytest.raises(UnknownNameError):
        engine("trtllm@0.9")


def test_the_cache_gets_its_share_of_what_is_left() -> None:
    found, deployment = made()
    use = found.memory(deployment)
    left = use.parts["kv"] / 0.9
    _, smaller = made(settings={"kv_cache_free_gpu_memory_fraction": 0.45})
    assert found.memory(smaller).parts["kv"] == pytest.approx(left * 0.45)
    assert sum(use.parts.values()) == pytest.approx(use.usable_bytes)
    assert use.kv_blocks == int(use.parts["kv"] // (32 * use.kv_bytes_per_token))
    _, capped = made(settings={"kv_cache_max_tokens": 6400})
    assert found.memory(capped).kv_blocks == 200
    assert found.memory(made(dtype="fp8")[1]).parts["weights"] < use.parts["weights"]


def test_a_cache_that_holds_no_sequence_does_not_fit() -> None:
    found, deployment = made(name="llama-3.1-70b", dtype="fp8", settings={"max_seq_len": 131072})
    with pytest.raises(DoesNotFitError, match="max_seq_len"):
        found.limits(deployment)


def test_settings_reach_the_scheduler() -> None:
    found, deployment = made()
    limits = found.limits(deployment)
    assert limits.policy == InflightBatching(no_evict=True, chunked=False)
    assert (limits.cache, limits.lookahead, limits.block_tokens) == (ReusedBlocks, 1, 32)
    other = {"capacity_scheduler_policy": "MAX_UTILIZATION", "enable_chunked_prefill": True}
    other |= {"enable_block_reuse": False, "disable_overlap_scheduler": True, "stream_interval": 4}
    changed = found.limits(made(settings=other)[1])
    assert changed.policy == InflightBatching(no_evict=False, chunked=True)
    assert (changed.cache, changed.lookahead) == (CountedBlocks, 0)
    assert changed.output_s == pytest.approx(limits.output_s / 4)


def test_without_padding_only_captured_sizes_run_from_graphs() -> None:
    found, deployment = made()
    host = found.host(deployment)
    assert isinstance(host, UnpaddedHost)
    assert host.padded(33) == 33
    assert host.decode(33) >= host.launch(33, 33, 0) > host.decode(64)
    padded = found.host(made(settings={"cuda_graph_enable_padding": True})[1])
    assert padded.padded(33) == 40
    assert padded.decode(33) < host.decode(33)


def test_kernels_are_those_of_its_own_tables_and_fused() -> None:
    found, deployment = made("H100:2", strategy=Strategy(tp=2), dtype="fp8")
    names = {op.name for op in found.graph(deployment).ops}
    assert "attention.qkv" in names
    assert not {name for name in names if name.endswith((".rope", ".cache_write", ".quantise"))}
    assert not names & {"attention.norm", "ffn.norm"}
    alone = {op.name for op in found.graph(made()[1]).ops}
    assert {"attention.norm", "ffn.norm"} <= alone
    family = found.step_model(deployment).machine.evidence("gemm", "fp8")
    assert "trtllm" in family.source


@pytest.mark.parametrize(
    ("on", "options", "told"),
    [
        ("A100", {"dtype": "fp8"}, "it needs Ada or Hopper or Blackwell"),
        ("H100", {"dtype": "nvfp4"}, "it needs Blackwell"),
        ("H100", {"dtype": "int8"}, "SmoothQuant"),
        ("H100:4", {"strategy": Strategy(tp=2, dp=2)}, "either cut"),
        ("H100:2", {"strategy": Strategy(tp=1, cp=2)}, "Helix"),
    ],
)
def test_what_does_not_run_is_refused(on: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        made(on, **options)


def test_a_chip_that_it_does_not_run_on_is_named() -> None:
    assert "NVIDIA" in engine("trtllm").runs_not_on(parse_pool("MI300X").chip)
    assert engine("trtllm").runs_not_on(POOL.chip) == ""


def test_a_long_prompt_needs_chunks() -> None:
    load = LOAD | {"input": 9000, "requests": 5}
    with pytest.raises(InputError, match="chunked prefill"):
        gnomon.simulate_serving("llama-3.1-8b", on="H100", engine="trtllm", **load)
    settings = {"enable_chunked_prefill": True}
    gnomon.simulate_serving("llama-3.1-8b", on="H100", engine="trtllm", settings=settings, **load)


@pytest.mark.heavy
def test_no_evict_holds_requests_back_and_max_utilization_pauses_them() -> None:
    load = {"rate": 200, "input": 300, "output": 300, "requests": 150}
    runs = {
        policy: gnomon.simulate_serving(
            "llama-3.1-8b", on="H100", engine="trtllm", **load,
            settings={"capacity_scheduler_policy": policy, "kv_cache_max_tokens": 12800, "max_seq_len": 1024},
        )
        for policy in ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION")
    }  # fmt: skip
    assert runs["GUARANTEED_NO_EVICT"].to_dict()["preemptions"] == 0
    assert runs["MAX_UTILIZATION"].to_dict()["preemptions"] > 0


def test_the_command_and_its_yaml() -> None:
    operations = operations_of("trtllm")
    assert operations is not None
    words = operations.command(plan())
    assert words[:4] == ["trtllm-serve", "meta-llama/Llama-3.1-8B-Instruct", "--backend", "pytorch"]
    assert words[-2:] == ["--extra_llm_api_options", "llm_api_options.yaml"]
    assert words[words.index("--max_seq_len") + 1] == "4096"
    text = operations.script(plan(kv_dtype="fp8"))
    inside = text.partition("END_OF_OPTIONS'\n")[2].partition("\nEND_OF_OPTIONS")[0]
    assert yaml.safe_load(inside) == {
        "cuda_graph_config": {"enable_padding": True},
        "enable_chunked_prefill": True,
        "kv_cache_config": {"dtype": "fp8"},
    }


def test_every_setting_that_is_written_comes_back_out_of_the_yaml() -> None:
    from gnomon.engines.trtllm.launch import options_yaml

    other = {
        "disable_overlap_scheduler": True, "capacity_scheduler_policy": "MAX_UTILIZATION",
        "enable_block_reuse": False, "enable_partial_reuse": False, "tokens_per_block": 64,
        "kv_cache_max_tokens": 6400, "cuda_graph_batch_sizes": "1 2 64", "stream_interval": 5,
        "enable_chunked_prefill": True, "cuda_graph_enable_padding": True, "max_seq_len": 4096,
    }  # fmt: skip
    text = options_yaml(plan(engine=EngineChoice(name="trtllm", settings=other)))
    flat: dict[str, Any] = {}

    def walk(found: dict[str, Any], path: str = "") -> None:
        for key, value in found.items():
            if isinstance(value, dict):
                walk(value, f"{path}{key}.")
            else:
                flat[f"{path}{key}"] = value

    walk(yaml.safe_load(text))
    again = fill({**flat, "max_seq_len": 4096}, MODEL, POOL)
    assert again == fill(other, MODEL, POOL)
    off = plan(engine=EngineChoice(name="trtllm", settings={"cuda_graph_max_batch_size": 0}))
    assert yaml.safe_load(options_yaml(off))["cuda_graph_config"] is None


def test_equal_ranks_have_equal_limits() -> None:
    """So that a planner simulates them once; the balancer knows how many requests a rank may have."""

    def found(**settings: Any) -> Any:
        engine, deployment = made("H100:4", "qwen3-30b-a3b", strategy=Strategy(dp=4, ep=4), settings=settings)
        return engine.limits(deployment)

    assert found().ranks == 4
    assert found() == found()
    assert found().balancer != found(max_batch_size=7).balancer


def test_attention_data_parallelism_is_written() -> None:
    from gnomon.engines.trtllm.launch import command, options_yaml

    spread = plan(model="qwen3-30b-a3b", strategy=Strategy(dp=4, ep=4))
    words = command(spread)
    assert words[words.index("--tp_size") + 1] == words[words.index("--ep_size") + 1] == "4"
    assert yaml.safe_load(options_yaml(spread))["enable_attention_dp"] is True


def test_what_is_not_expressed_is_said() -> None:
    operations = operations_of("trtllm")
    assert operations is not None
    told = " ".join(operations.not_expressed(plan(dtype="fp8", replicas=2)))
    assert "load balancer" in told and "ModelOpt" in told
    assert operations.command(plan(dtype="fp8"))[1] == "CHECKPOINT"
    with pytest.raises(InputError, match="quantizes nothing"):
        operations.check(plan(dtype="fp8"))
    with pytest.raises(InputError, match="does not run TensorRT-LLM"):
        operations.check_measured(plan())
    container = operations.container(plan())
    assert container.image == "nvcr.io/nvidia/tensorrt-llm/release:1.2.1"
    assert "llm_api_options.yaml && exec trtllm-serve" in container.args[0]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_says_what_it_does(option: Any) -> None:
    assert option.what and (option.unmodelled or option.idle or option.choices or option.high == 1)
    assert BY_NAME[option.name] is option


ACTS = {
    "max_batch_size": 2, "max_num_tokens": 2048, "enable_chunked_prefill": True, "disable_overlap_scheduler": True,
    "tokens_per_block": 64, "kv_cache_max_tokens": 3200, "cuda_graph_max_batch_size": 0,
    "cuda_graph_enable_padding": True, "stream_interval": 10, "served_by": "trtllm-bench",
    "kv_cache_free_gpu_memory_fraction": 0.3,
}  # fmt: skip


@pytest.mark.parametrize("name", ACTS)
def test_settings_change_a_load_or_are_listed(name: str) -> None:
    load = {"rate": 40, "input": 1500, "output": 40, "requests": 60}
    base = {"max_seq_len": 2048, "max_batch_size": 1024}
    answers = [
        gnomon.simulate_serving("llama-3.1-8b", on="H100", engine="trtllm", settings=given, **load).to_dict()
        for given in (base, base | {name: ACTS[name]})
    ]
    before, after = ({k: v for k, v in one.items() if k not in ("inputs", "not_modelled")} for one in answers)
    listed = any(one["option"].startswith(name) for one in answers[1].get("not_modelled", ()))
    assert before != after or listed


def test_experts_of_its_own_kernels_for_blackwell() -> None:
    """`moe_config.backend: TRTLLM`: fp8 in blocks and nvfp4, on Blackwell alone."""
    asked: dict[str, Any] = {"phase": "decode", "batch": 16, "context": 1000, "engine": "trtllm"}
    own = {"moe_config_backend": "TRTLLM"}
    for dtype in (None, "nvfp4"):
        plain, mine = (gnomon.predict("deepseek-v3", on="B200:8", tp=8, dtype=dtype, settings=settings, **asked)
                       for settings in ({}, own))  # fmt: skip
        assert mine.time_s.value < plain.time_s.value
    for model, on, why in (
        ("deepseek-v3", "H200:8", "do not run on"),
        ("llama-3.1-8b", "B200", "has no experts"),
        ("qwen3-30b-a3b", "B200", "do not run in bf16"),
    ):
        with pytest.raises(InputError, match=why):
            gnomon.predict(model, on=on, settings=own, **asked)


@pytest.mark.heavy
def test_plans_try_padded_graphs_unless_they_are_said() -> None:
    asked: dict[str, Any] = {"fleet": "H100:1", "engine": "trtllm", "rate": 20, "input": 400, "output": 40}
    asked |= {"dtypes": "bf16", "slo": "tpot_p90=30ms"}
    limits = {"max_batch_size": 256, "max_num_tokens": 8192}
    found = gnomon.plan_serving("llama-3.1-8b", settings=limits, **asked)
    assert found.axes["CUDA graph padding"] == ("0", "1")
    name = "cuda_graph_enable_padding"
    for said in (name, "cuda_graph_config.enable_padding"):
        told = gnomon.plan_serving("llama-3.1-8b", settings={**limits, said: True}, **asked)
        assert told.axes.get("CUDA graph padding", ("1",)) == ("1",)
        assert told.best.plan.engine.settings[said] in (True, 1)
    with pytest.raises(InputError, match=f"{name} is given twice"):
        fill({name: True, "cuda_graph_config.enable_padding": False}, MODEL, POOL)


@pytest.mark.slow
def test_padding_is_what_keeps_a_plan_cheap() -> None:
    """Without it, decode steps of sizes that are not captured are launched kernel by kernel."""
    asked: dict[str, Any] = {"fleet": "H100:2", "engine": "trtllm", "rate": 20, "input": 1000, "output": 200}
    asked |= {"dtypes": "bf16", "slo": "tpot_p90=30ms"}
    free = gnomon.plan_serving("llama-3.1-8b", **asked)
    assert free.best.plan.engine.settings["cuda_graph_enable_padding"] == 1
    off = gnomon.plan_serving("llama-3.1-8b", settings={"cuda_graph_enable_padding": False}, **asked)
    assert free.best.usd_h < off.best.usd_h
