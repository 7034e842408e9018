"""SGLang's launch commands read back: every flag of its own parser, values, degrees, formats and CUDA graphs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.engines.operations import EngineCommand, ImportedCommand
from gnomon.engines.sglang import arguments
from gnomon.engines.sglang.imported import FORMATS, UNQUANTIZED, import_command
from gnomon.engines.sglang.options import OPTIONS
from gnomon.errors import InputError
from gnomon.load.commands.plan import NamesOf
from gnomon.spec import Strategy

LAUNCH = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct"
ROWS = [
    line.split()
    for line in (Path(__file__).parent / "data" / "sglang_flags.txt").read_text().splitlines()
    if not line.startswith("#")
]
KINDS = {names[0]: kind for kind, *names in ROWS}
NAMES = NamesOf(folder=Path(), known="", dtype="")


def read(words: str) -> ImportedCommand:
    return import_command(EngineCommand(arguments=tuple(shlex.split(f"--model-path llama-3.1-8b {words}"))), NAMES)


def imported(words: str, **more: Any) -> Any:
    return gnomon.import_plan(f"{LAUNCH} {words}", **{"on": "H100"} | more)


def told(found: Any) -> dict[str, bool]:
    return {one.option: one.affects for one in found.ignored}


def test_the_table_has_every_flag() -> None:
    assert arguments.KNOWN - set(arguments.SERVE_ONLY) == set(KINDS)
    assert not arguments.ACTING & arguments.UNUSED.keys()
    others = {other: names[0] for _, *names in ROWS for other in names[1:]}
    assert others == arguments.ALIASES
    assert not set(arguments.EARLIER) & {name for _, *names in ROWS for name in names}


def test_flags_take_as_many_values_as_sglang_gives_them() -> None:
    assert {name for name, kind in KINDS.items() if kind in ("switch", "negatable")} == arguments.SWITCHES
    assert {name for name, kind in KINDS.items() if kind == "negatable"} == arguments.NEGATABLE
    assert {name for name, kind in KINDS.items() if kind in ("some", "any")} == arguments.SEVERAL
    assert {name for name, kind in KINDS.items() if kind in ("any", "maybe")} == arguments.OPTIONAL


def test_flags_that_are_written_are_sglangs() -> None:
    assert {option.flag.removeprefix("--") for option in OPTIONS} <= set(KINDS)


@pytest.mark.battery(10)
@pytest.mark.parametrize("name", sorted(arguments.KNOWN - {"model-path", "config"}))
def test_every_flag_acts_or_is_listed_or_is_refused(name: str) -> None:
    written = f"--{name}" if name in arguments.SWITCHES else f"--{name} 2"
    try:
        found = read(written)
    except InputError as error:
        assert name in error.where or error.where == "--attn-dp-size", error
        return
    listed = [one for one in found.ignored if one.option.startswith(f"--{name}")]
    acts = replace(found, ignored=()) != replace(read(""), ignored=())
    assert listed or acts or name == "enable-dp-attention"  # which acts beside --dp-size: test_degrees
    assert all(one.why for one in listed)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("--context-length 32k", {"context_length": 32_000}),
        ("--context-length 32Ki --max-prefill-tokens 1.5k", {"context_length": 32_768, "max_prefill_tokens": 1500}),
        ("--mem-fraction 0.8", {"mem_fraction_static": 0.8}),
        ("--chunked-prefill-size -1", {"chunked_prefill_size": -1}),
        ("--disable-radix-cache --schedule-policy=lpm", {"disable_radix_cache": True, "schedule_policy": "lpm"}),
        ("--schedule-policy dfs-weight --attention-backend flex_attention", {}),
        ("--attention-backend fa3 --page-size 16", {"attention_backend": "fa3", "page_size": 16}),
        ("--cuda-graph-max-bs 64", {"cuda_graph_max_bs": 64}),
        ("--cuda-graph-max-bs-decode 64", {"cuda_graph_max_bs": 64}),
        ("--cuda-graph-bs-decode 1 2 48 --port 80", {"cuda_graph_max_bs": 48}),
        ('--cuda-graph-config \'{"decode": {"max_bs": 32}}\'', {"cuda_graph_max_bs": 32}),
        ('--cuda-graph-config \'{"prefill": {"backend": "disabled"}}\'', {"disable_prefill_cuda_graph": True}),
        ("--cuda-graph-backend-prefill disabled", {"disable_prefill_cuda_graph": True}),
        ("--disable-decode-cuda-graph --disable-prefill-cuda-graph", {"disable_cuda_graph": True}),
        ("--disable-cuda-graph", {"disable_cuda_graph": True}),
        ("--cuda-graph-backend-decode full --disable-decode-cuda-graph", {}),
    ],
)
def test_settings(words: str, settings: dict[str, Any]) -> None:
    assert read(words).settings == settings


@pytest.mark.parametrize(
    ("words", "strategy", "replicas"),
    [
        ("--tp 8", Strategy(tp=8), 1),
        ("--tensor-parallel-size 4 --pipeline-parallel-size 2", Strategy(tp=4, pp=2), 1),
        ("--tp 2 --dp 4", Strategy(tp=2), 4),
        ("--tp 8 --dp-size 8 --enable-dp-attention", Strategy(dp=8), 1),
        ("--tp 8 --attn-dp-size 4 --ep 8", Strategy(tp=2, dp=4, ep=8), 1),
        ("--tp 8 --attn-dp-size 4 --enable-dp-attention", Strategy(tp=2, dp=4), 1),
        ("--tp 8 --moe-a2a-backend deepep", Strategy(tp=8, ep=8), 1),
        ("--tp 8 --moe-a2a-backend none", Strategy(tp=8), 1),
    ],
)
def test_degrees(words: str, strategy: Strategy, replicas: int) -> None:
    found = read(words)
    assert (found.strategy, found.replicas) == (strategy, replicas)


def test_replicas_of_one_server_are_replicas_of_the_plan() -> None:
    assert imported("--tp 2 --dp-size 4").plan.replicas == 4
    assert imported("--tp 2 --dp-size 4", on="H100:8").plan.replicas == 4
    with pytest.raises(InputError, match="chips"):
        gnomon.import_plan(f"CUDA_VISIBLE_DEVICES=0,1,2,3 {LAUNCH} --tp 2 --dp-size 4", on="H100")


@pytest.mark.parametrize(
    ("words", "dtype", "kv_dtype"),
    [
        ("", "bf16", ""),
        ("--dtype half", "fp16", ""),
        ("--quantization fp8 --kv-cache-dtype fp8_e4m3", "fp8", "fp8"),
        (f"--quantization {UNQUANTIZED} --kv-cache-dtype fp8_e5m2", "bf16", "fp8"),
    ],
)
def test_formats(words: str, dtype: str, kv_dtype: str) -> None:
    found = read(words)
    assert (found.dtype, found.kv_dtype) == (dtype, kv_dtype)
    assert "fp8_e5m2" not in FORMATS.caches


def test_what_is_not_modelled_is_told() -> None:
    found = imported("--speculative-algorithm EAGLE --lora-paths a=b c=d --log-level debug --enable-metrics")
    assert told(found) == {
        "--speculative-algorithm EAGLE": True,
        "--lora-paths a=b c=d": True,
        "--log-level debug": False,
        "--enable-metrics": False,
    }


@pytest.mark.parametrize(
    "text",
    [
        "sglang serve meta-llama/Llama-3.1-8B-Instruct --tp 2",
        "sglang serve --model-path llama-3.1-8b --tp=2 --model-type llm",
        "docker run --gpus '\"device=0,1\"' --ipc=host -p 30000:30000 -e SGLANG_X=1 lmsysorg/sglang:v0.5.23 "
        "python3 -m sglang.launch_server --model llama-3.1-8b --tp 2 --host 0.0.0.0",
        "for i in 0; do CUDA_VISIBLE_DEVICES=0,1 uv run python -m sglang.launch_server --model llama-3.1-8b --tp 2 & "
        "done",
        "srun python -m sglang.launch_server --model llama-3.1-8b --tp 2 --nnodes 2 --node-rank $SLURM_NODEID "
        "--dist-init-addr $HEAD:20000",
    ],
)
def test_one_server_however_it_is_started(text: str) -> None:
    plan = gnomon.import_plan(text, on="H100").plan
    assert (plan.model, plan.replicas, plan.strategy.tp, plan.engine.name) == ("llama-3.1-8b", 1, 2, "sglang")


def test_the_workers_of_a_replica_are_not_replicas() -> None:
    worker = f"{LAUNCH} --tp 16 --nnodes 2 --node-rank 1"
    found = gnomon.import_plan(f"{worker.replace('rank 1', 'rank 0')} & {worker}", on="H100")
    assert (found.plan.replicas, found.plan.strategy.tp) == (1, 16)
    with pytest.raises(InputError, match="elsewhere"):
        gnomon.import_plan(worker, on="H100")


def test_a_configuration_file_by_itself_and_by_its_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "serve.yaml").write_text(
        "model-path: Qwen/Qwen3-30B-A3B\ntensor-parallel-size: 4\nep: 4\ndisable-radix-cache: true\n"
        "enable-metrics: false\ncuda-graph-bs-decode: [1, 2, 8]\nhost: 0.0.0.0\n"
    )
    alone = gnomon.import_plan("serve.yaml", on="H200").plan
    assert (alone.engine.name, alone.strategy) == ("sglang", Strategy(tp=4, ep=4))
    assert dict(alone.engine.settings) == {"disable_radix_cache": True, "cuda_graph_max_bs": 8}
    flag = gnomon.import_plan("python -m sglang.launch_server --config serve.yaml --tp 8 --ep 8", on="H200").plan
    assert flag.strategy == Strategy(tp=8, ep=8)  # the command line wins, as in SGLang


def test_a_deployment(tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text(
        "apiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 3\n  template:\n    spec:\n      containers:\n"
        "        - name: server\n          image: lmsysorg/sglang:v0.4.9\n"
        "          command: [python3, -m, sglang.launch_server]\n"
        '          args: [--model-path, Qwen/Qwen3-8B, --tp, "2", --context-length, "8192"]\n'
        "          resources: {limits: {nvidia.com/gpu: 2}}\n"
    )
    found = gnomon.import_plan(file, on="L40S")
    assert (found.plan.model, found.plan.replicas, found.plan.engine.version) == ("qwen3-8b", 3, "")
    assert told(found) == {"image lmsysorg/sglang:v0.4.9": True}
