"""Exported commands pass vLLM's own argument parser, and the defaults we fill in are those vLLM computes."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from gnomon import catalog
from gnomon.api.export import export
from gnomon.engines.vllm.captures import captured_sizes
from gnomon.engines.vllm.launch import servers
from gnomon.engines.vllm.options import fill
from gnomon.engines.vllm.platforms import capability
from gnomon.load import model as load_model
from gnomon.spec import Chip, EngineChoice, Plan, Pool, Strategy

pytest.importorskip("torch", reason="vLLM is not installed; run `make test-oracles`")
from tests.oracles.vllm_release import RELEASE, make_arg_parser  # isort: skip

from vllm.config import CompilationConfig, SchedulerConfig, VllmConfig
from vllm.config.compilation import CUDAGraphMode
from vllm.engine import arg_utils
from vllm.platforms.cpu import CpuPlatform
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser

pytestmark = pytest.mark.oracle

SETTINGS: list[dict[str, Any]] = [
    {},
    {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "max_model_len": 8192},
    {"gpu_memory_utilization": 0.85, "block_size": 32, "async_scheduling": False},
    {"enforce_eager": True, "enable_prefix_caching": False},
    {"max_cudagraph_capture_size": 100},
    {"enforce_eager": True, "max_model_len": 4096},
]


def plan(settings: dict[str, Any], **changes: Any) -> Plan:
    base: dict[str, Any] = {
        "model": "llama-3.1-70b",
        "chip": "H100",
        "replicas": 2,
        "strategy": Strategy(tp=4),
        "dtype": "fp8",
        "kv_dtype": "fp8",
    }
    return Plan(**base | changes, engine=EngineChoice(version=RELEASE.version, settings=settings))


@pytest.fixture(scope="module")
def parser() -> Any:
    return make_arg_parser(FlexibleArgumentParser())


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_command_says_what_the_plan_says(parser: Any, settings: dict[str, Any]) -> None:
    chosen = plan(settings)
    words = shlex.split(export(chosen).command)
    assert words[:2] == ["vllm", "serve"]
    read = parser.parse_args(words[2:])
    pool = Pool(chip=catalog.chip("H100"), count=4, per_node=8)
    filled = fill(settings, load_model("llama-3.1-70b"), pool, RELEASE)
    assert read.model_tag == "meta-llama/Llama-3.1-70B-Instruct"
    assert read.tensor_parallel_size == 4
    assert (read.quantization, read.kv_cache_dtype) == ("fp8", "fp8")
    for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization"):
        assert getattr(read, name) == filled[name], name
    for name, value in settings.items():
        wanted = filled[name] if name == "max_cudagraph_capture_size" else value
        assert getattr(read, name) == wanted, name


FEATURES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"speculative_method": "ngram", "num_speculative_tokens": 3, "draft_acceptance": "0.6"},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}, "async_scheduling": False},
    ),
    (
        {"speculative_method": "ngram_gpu", "num_speculative_tokens": 2},
        {"speculative_config": {"method": "ngram_gpu", "num_speculative_tokens": 2}},
    ),
    (
        {
            "speculative_method": "draft_model",
            "num_speculative_tokens": 4,
            "draft_parameters": 1235814400,
            "draft_model": "llama-3.2-1b",
        },
        {
            "speculative_config": {
                "method": "draft_model",
                "num_speculative_tokens": 4,
                "model": "meta-llama/Llama-3.2-1B-Instruct",
            }
        },
    ),
    (
        {"speculative_method": "eagle3", "num_speculative_tokens": 2, "draft_model": "some/head"},
        {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 2, "model": "some/head"}},
    ),
    (
        {"enable_lora": True, "max_loras": 4, "max_lora_rank": 32, "max_cpu_loras": 8},
        {"enable_lora": True, "max_loras": 4, "max_lora_rank": 32, "max_cpu_loras": 8},
    ),
    ({"kv_offloading_size": 8}, {"kv_offloading_size": 8.0, "kv_offloading_backend": "native"}),
    ({"scheduling_policy": "priority"}, {"scheduling_policy": "priority"}),
]


@pytest.mark.parametrize(("settings", "expected"), FEATURES)
def test_drafts_adapters_and_host_blocks(parser: Any, settings: dict[str, Any], expected: dict[str, Any]) -> None:
    read = parser.parse_args(shlex.split(export(plan(settings)).command)[2:])
    assert {name: getattr(read, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dtype": "bf16", "kv_dtype": "bf16"}, {"dtype": "bfloat16", "quantization": None, "kv_cache_dtype": "auto"}),
        ({"strategy": Strategy(tp=2, pp=2)}, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}),
        (
            {"strategy": Strategy(tp=8, cp=2), "model": "qwen3-235b-a22b", "chip": "H200"},
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 2},
        ),
        (
            {"strategy": Strategy(tp=2, dp=2, ep=4), "model": "qwen3-30b-a3b"},
            {"data_parallel_size": 2, "enable_expert_parallel": True},
        ),
    ],
)
def test_degrees_and_formats(parser: Any, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    read = parser.parse_args(shlex.split(export(plan({}, **changes)).command)[2:])
    assert {name: getattr(read, name) for name in expected} == expected


def test_every_replica_has_a_port_vllm_reads(parser: Any) -> None:
    ports = [parser.parse_args(list(server.words[2:])).port for server in servers(plan({}))]
    assert ports == [8000, 8001]


@pytest.mark.parametrize("sequences", [1, 3, 8, 100, 128, 256, 300, 1024])
@pytest.mark.parametrize("tokens", [100, 1024, 2048, 8192])
@pytest.mark.parametrize("largest", [None, 1, 7, 96, 100, 300, 600])
@pytest.mark.parametrize(("chip", "drafts"), [("H100", 0), ("B200", 0), ("H100", 3)])
def test_captured_sizes(sequences: int, tokens: int, largest: int | None, chip: str, drafts: int) -> None:
    if tokens < sequences:
        pytest.skip("vLLM refuses fewer tokens than sequences")
    given = {"max_num_seqs": sequences, "max_num_batched_tokens": tokens}
    given |= {"max_cudagraph_capture_size": largest} if largest else {}
    given |= {"speculative_method": "ngram_gpu", "num_speculative_tokens": drafts} if drafts else {}
    pool = Pool(chip=catalog.chip(chip), count=1, per_node=8)
    ours = fill(given, load_model("llama-3.1-8b"), pool, RELEASE)
    name = "max_cudagraph_capture_size"
    usual = fill({key: value for key, value in given.items() if key != name}, load_model("llama-3.1-8b"), pool, RELEASE)
    if ours[name] == usual[name]:  # what equals the default is not written into a command
        largest = None
    theirs = vllm_sizes(sequences, tokens, largest, drafts, pool.chip)
    assert captured_sizes(ours, pool.chip, RELEASE) == theirs
    assert ours["max_cudagraph_capture_size"] == theirs[-1]


def vllm_sizes(sequences: int, tokens: int, largest: int | None, drafts: int, chip: Chip) -> list[int]:
    """The sizes by vLLM's own method, on an object with only what the method looks at."""
    compilation = CompilationConfig(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE)
    compilation.max_cudagraph_capture_size = largest
    compilation.post_init_cudagraph_sizes = lambda: None
    stand_in = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(max_num_seqs=sequences, max_num_batched_tokens=tokens),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
        num_speculative_tokens=drafts,
        uniform_decode_query_len=1 + drafts,
        speculative_config=None,
        performance_mode="balanced",
    )
    family = {"is_device_capability_family": lambda number: number // 10 == capability(chip)[0]}
    with patch.multiple(CpuPlatform, **{name: staticmethod(value) for name, value in family.items()}):
        VllmConfig._set_cudagraph_sizes(stand_in)
    return list(compilation.cudagraph_capture_sizes)


@pytest.mark.parametrize("chip", ["H100", "H200", "B200", "A100", "L40S", "DGX-Spark", "MI300X"])
def test_batch_defaults(chip: str) -> None:
    found = catalog.chip(chip)
    platform = SimpleNamespace(
        get_device_total_memory=lambda: found.memory_bytes,
        get_device_name=lambda: found.name,
        is_tpu=lambda: False,
        is_cpu=lambda: False,
        is_device_capability=lambda wanted: capability(found) == wanted,
    )
    with patch.object(arg_utils, "current_platform", platform):
        tokens, sequences = arg_utils.EngineArgs.get_batch_defaults(1)
    ours = fill({}, load_model("llama-3.1-8b"), Pool(chip=found, count=1, per_node=8), RELEASE)
    assert ours["max_num_batched_tokens"] == tokens[UsageContext.OPENAI_API_SERVER]
    assert ours["max_num_seqs"] == sequences[UsageContext.OPENAI_API_SERVER]


def test_fewer_tokens_than_sequences_is_refused_by_both() -> None:
    with pytest.raises(Exception, match="max_num_seqs"):
        SchedulerConfig(max_num_seqs=64, max_num_batched_tokens=32, max_model_len=16, is_encoder_decoder=False)
    with pytest.raises(Exception, match="max_num_seqs"):
        fill(
            {"max_num_seqs": 64, "max_num_batched_tokens": 32},
            load_model("llama-3.1-8b"),
            Pool(chip=catalog.chip("H100"), count=1, per_node=8),
        )


@pytest.mark.parametrize(
    ("model", "strategy", "nodes"),
    [
        ("llama-3.1-8b", Strategy(tp=8, pp=2), 2),
        ("llama-3.1-8b", Strategy(tp=16), 2),
        ("qwen3-30b-a3b", Strategy(tp=2, dp=8, ep=16), 2),
        ("qwen3-30b-a3b", Strategy(tp=16, dp=2, ep=32), 4),
    ],
)
def test_nodes_of_a_replica_make_one_group(
    parser: Any, model: str, strategy: Strategy, nodes: int, tmp_path: Path
) -> None:
    """vLLM's own configuration of every node: all ranks once, those of a data-parallel rank on neighbouring nodes."""
    (tmp_path / "config.json").write_text(catalog.model_config_path(model).read_text())
    chosen = plan(
        {"max_model_len": 2048}, model=str(tmp_path), strategy=strategy, replicas=1, dtype="bf16", kv_dtype=""
    )
    held = []
    for server in servers(chosen):
        read = parser.parse_args([word.replace("$MASTER_ADDR", "10.0.0.1") for word in server.words[2:]])
        given = arg_utils.AsyncEngineArgs.from_cli_args(read)
        given.model, given.skip_tokenizer_init = read.model_tag, True
        found = given.create_engine_config(headless=read.headless).parallel_config
        assert (found.nnodes, found.node_rank, found.master_addr) == (nodes, server.node, "10.0.0.1")
        assert found.local_world_size * found.data_parallel_size_local == len(server.devices)
        assert read.headless == (server.node > 0)
        first = found.data_parallel_rank * found.world_size + found.node_rank_within_dp * found.local_world_size
        held += range(first, first + len(server.devices))
    assert sorted(held) == list(range(chosen.ranks))
