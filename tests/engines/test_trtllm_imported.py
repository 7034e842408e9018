"""Commands of `trtllm-serve` and `trtllm-bench` with the YAML they read: every flag and field, values, degrees."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.engines.operations import EngineCommand, ImportedCommand
from gnomon.engines.trtllm import arguments
from gnomon.engines.trtllm.imported import IN_FILES, import_command
from gnomon.errors import InputError
from gnomon.load.commands.plan import NamesOf
from gnomon.spec import Strategy

ROWS = [
    line.split()
    for line in (Path(__file__).parent / "data" / "trtllm_names.txt").read_text().splitlines()
    if not line.startswith("#")
]
FRACTION = "kv_cache_free_gpu_memory_fraction"
SERVE = "trtllm-serve meta-llama/Llama-3.1-8B-Instruct"


def listed(kind: str) -> set[str]:
    return {name for row, *names in ROWS if row == kind for name in names}


def read(words: str = "", yaml: str = "", program: str = "") -> ImportedCommand:
    names = NamesOf(folder=Path(), known="", dtype="", files={"x.yaml": yaml})
    model = "-m llama-3.1-8b throughput" if program else "llama-3.1-8b"
    written = f"{model} {words}{' --config x.yaml' if yaml else ''}"
    return import_command(EngineCommand(arguments=tuple(shlex.split(written)), program=program), names)


def told(found: Any) -> dict[str, bool]:
    return {one.option: one.affects for one in found.ignored}


def test_the_tables_have_every_name() -> None:
    assert {*arguments.SERVE.known, *arguments.SERVE.aliases} == listed("serve")
    assert {*arguments.BENCH.known, *arguments.BENCH.aliases} == listed("bench")
    assert listed("field") == IN_FILES


@pytest.mark.parametrize("name", sorted(listed("serve") - {"config", "extra_llm_api_options"}))
def test_every_flag_acts_or_is_listed_or_is_refused(name: str) -> None:
    own = arguments.SERVE.aliases.get(name, name)
    value = {"backend": "pytorch", "free_gpu_memory_fraction": "0.5", "max_beam_width": "1", "max_num_tokens": "9000"}
    written = f"--{name}" if own in arguments.SERVE.switches else f"--{name} {value.get(own, 2)}"
    try:
        found = read(written)
    except InputError as error:
        assert own in error.where, error
        return
    shown = [one for one in found.ignored if one.option.startswith(f"--{own}")]
    assert shown or found.same != read().same or own == "backend"


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", sorted(listed("field") - {"model", "backend"}))
def test_every_field_acts_or_is_listed_or_is_refused(name: str) -> None:
    group, _, inner = name.rpartition(".")
    try:
        found = read(yaml=f"{group}: {{{inner}: 2}}\n" if group else f"{name}: 2\n")
    except InputError as error:
        assert name in error.where, error
        return
    shown = [one for one in found.ignored if one.option.startswith(f"{name}: 2")]
    assert shown or found.same != read().same


@pytest.mark.parametrize("name", sorted(listed("bench") - {"model", "config", "extra_llm_api_options", "engine_dir"}))
def test_every_flag_of_the_benchmark_acts_or_is_listed_or_is_refused(name: str) -> None:
    value = {"backend": "pytorch", "kv_cache_free_gpu_mem_fraction": "0.5", "beam_width": "1", "max_num_tokens": "9000"}
    written = f"--{name}" if name in arguments.BENCH.switches else f"--{name} {value.get(name, 2)}"
    try:
        found = read(written, program="trtllm-bench")
    except InputError as error:
        assert name.removeprefix("scheduler_") in error.where, error
        return
    base = read(program="trtllm-bench")
    shown = [one for one in found.ignored if one.option.startswith(f"--{name}")]
    assert shown or found.same != base.same or name in ("backend", "disable_chunked_context")


@pytest.mark.parametrize(
    ("words", "yaml", "settings"),
    [
        ("--max_batch_size 64 --max_seq_len=4096", "", {"max_batch_size": 64, "max_seq_len": 4096}),
        ("--kv_cache_free_gpu_memory_fraction 0.8", "", {FRACTION: 0.8}),
        ("--free_gpu_memory_fraction 0.8", "max_seq_len: 99", {FRACTION: 0.8, "max_seq_len": 99}),
        ("", "kv_cache_config: {free_gpu_memory_fraction: 0.7}", {FRACTION: 0.7}),
        ("--max_batch_size 64", "max_batch_size: 32", {"max_batch_size": 32}),
        ("", "kv_cache_config: {enable_block_reuse: false, max_tokens: 64}",
         {"enable_block_reuse": False, "kv_cache_max_tokens": 64}),
        ("", "cuda_graph_config: null", {"cuda_graph_max_batch_size": 0}),
        ("", "cuda_graph_config: {}", {}),
        ("", "cuda_graph_config: {max_batch_size: 0, enable_padding: true}", {"cuda_graph_enable_padding": True}),
        ("", "cuda_graph_config: {batch_sizes: [4, 1, 2]}", {"cuda_graph_batch_sizes": "1 2 4"}),
        ("", "scheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}",
         {"capacity_scheduler_policy": "MAX_UTILIZATION"}),
        ("", "moe_config: {backend: TRTLLM}\nattn_backend: FLASHINFER", {"moe_config_backend": "TRTLLM"}),
        ("--enable_chunked_prefill", "stream_interval: 4", {"enable_chunked_prefill": True, "stream_interval": 4}),
    ],
)  # fmt: skip
def test_settings(words: str, yaml: str, settings: dict[str, Any]) -> None:
    assert read(words, yaml).settings == settings


@pytest.mark.parametrize(
    ("words", "yaml", "strategy"),
    [
        ("--tp_size 8 --ep_size 8", "", Strategy(tp=8, ep=8)),
        ("--tensor_parallel_size 4 --pp_size 2", "", Strategy(tp=4, pp=2)),
        ("--tp_size 8 --ep_size 8", "enable_attention_dp: true", Strategy(dp=8, ep=8)),
        ("--tp_size 8", "moe_tensor_parallel_size: 1", Strategy(tp=8, ep=8)),
        ("--tp_size 8", "tensor_parallel_size: 4", Strategy(tp=4)),
    ],
)
def test_degrees(words: str, yaml: str, strategy: Strategy) -> None:
    assert read(words, yaml).strategy == strategy


def test_formats() -> None:
    assert (read().dtype, read().kv_dtype) == ("bf16", "")
    found = read(yaml="dtype: float16\nkv_cache_config: {dtype: fp8}")
    assert (found.dtype, found.kv_dtype) == ("fp16", "fp8")


def test_the_file_wins_and_says_so() -> None:
    found = read("--max_batch_size 64 --port 80", "max_batch_size: 32\nspeculative_config: {decoding_type: MTP}")
    assert told(found) == {
        "--max_batch_size 64": False,
        "--port 80": False,
        'speculative_config: {"decoding_type": "MTP"}': True,
    }


def test_a_benchmark_has_settings_of_its_own() -> None:
    found = read("--tp 2 --max_batch_size 512 --max_num_tokens 4096 --max_seq_len 2048", program="trtllm-bench")
    assert found.strategy == Strategy(tp=2)
    assert found.settings == {
        "max_batch_size": 512, "max_num_tokens": 4096, "max_seq_len": 2048, "served_by": "trtllm-bench",
        "enable_block_reuse": False, "cuda_graph_max_batch_size": 512, "cuda_graph_enable_padding": True,
    }  # fmt: skip
    assert told(found) == {"--enable_chunked_context": True}


SCRIPT = """\
#!/bin/bash
MODEL=meta-llama/Llama-3.1-8B-Instruct
TP=2
cat > /tmp/extra-llm-api-config.yml <<EOF
kv_cache_config:
    free_gpu_memory_fraction: 0.8   # of what is left
max_batch_size: ${TP}56
EOF
trtllm-llmapi-launch trtllm-serve $MODEL --tp_size $TP --config /tmp/extra-llm-api-config.yml 2>&1 | tee log
"""


@pytest.mark.parametrize(
    "start",
    [
        "cat > /tmp/extra-llm-api-config.yml <<EOF",
        "cat << EOF > /tmp/./extra-llm-api-config.yml",
        "tee /tmp/extra-llm-api-config.yml <<-EOF",
    ],
)
def test_a_script_that_writes_its_yaml(start: str, tmp_path: Path) -> None:
    file = tmp_path / "start.sh"
    file.write_text(SCRIPT.replace("cat > /tmp/extra-llm-api-config.yml <<EOF", start))
    found = gnomon.import_plan(file, on="H100")
    assert (found.plan.model, found.plan.strategy) == ("llama-3.1-8b", Strategy(tp=2))
    assert found.plan.engine.settings == {"kv_cache_free_gpu_memory_fraction": 0.8, "max_batch_size": 256}


@pytest.mark.parametrize("text", [SCRIPT.replace("${TP}56", "$BATCH"), SCRIPT.replace("${TP}56", "$(nproc)")])
def test_a_yaml_that_only_the_shell_knows_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "start.sh"
    file.write_text(text)
    with pytest.raises(InputError, match="only the shell knows"):
        gnomon.import_plan(file, on="H100")
    file.write_text(text.replace("<<EOF", "<<'EOF'"))  # as it stands
    with pytest.raises(InputError, match="whole number"):
        gnomon.import_plan(file, on="H100")


def test_an_echo_and_a_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = f"echo 'enable_chunked_prefill: true' > a.yaml && {SERVE} --config a.yaml"
    assert gnomon.import_plan(written, on="H100").plan.engine.settings == {"enable_chunked_prefill": True}
    assert not (tmp_path / "a.yaml").exists()
    (tmp_path / "b.yaml").write_text("stream_interval: 8\n")
    beside = gnomon.import_plan(f"{SERVE} --extra_llm_api_options b.yaml", on="H100").plan
    assert beside.engine.settings == {"stream_interval": 8}


@pytest.mark.parametrize(
    "text",
    [
        "trtllm-serve serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2 --backend pytorch",
        "mpirun -n 1 python -m tensorrt_llm.commands.serve llama-3.1-8b --tp_size 2",
        "docker run --gpus 2 nvcr.io/nvidia/tensorrt-llm/release:1.2.1 trtllm-serve llama-3.1-8b --tp_size 2",
        "trtllm-bench --model llama-3.1-8b latency --tp 2 --dataset x.json",
    ],
)
def test_one_server_however_it_is_started(text: str) -> None:
    plan = gnomon.import_plan(text, on="H100").plan
    assert (plan.model, plan.replicas, plan.strategy.tp, plan.engine.name) == ("llama-3.1-8b", 1, 2, "trtllm")


def test_a_file_of_llm_arguments_with_a_model(tmp_path: Path) -> None:
    file = tmp_path / "llm.yaml"
    file.write_text("model: Qwen/Qwen3-8B\ntensor_parallel_size: 2\nkv_cache_config: {dtype: fp8}\n")
    plan = gnomon.import_plan(file, on="H200").plan
    assert (plan.engine.name, plan.strategy.tp, plan.kv_dtype) == ("trtllm", 2, "fp8")


MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: options}
data:
  extra.yaml: |
    kv_cache_config: {free_gpu_memory_fraction: 0.75}
---
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 2
  template:
    spec:
      volumes: [{name: options, configMap: {name: options}}]
      containers:
        - name: server
          image: nvcr.io/nvidia/tensorrt-llm/release:1.2.1
          command: [trtllm-serve]
          args: [llama-3.1-8b, --config, /etc/trtllm/extra.yaml]
          volumeMounts: [{name: options, mountPath: /etc/trtllm}]
"""
ONE_FILE = ("mountPath: /etc/trtllm}", "mountPath: /etc/trtllm/extra.yaml, subPath: extra.yaml}")
OTHER_NAME = ("configMap: {name: options}", "configMap: {name: options, items: [{key: extra.yaml, path: extra.yaml}]}")


@pytest.mark.parametrize("change", [("", ""), ONE_FILE, OTHER_NAME])
def test_a_manifest_that_mounts_its_yaml(change: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text(MANIFEST.replace(*change))
    plan = gnomon.import_plan(file, on="H100").plan
    assert (plan.replicas, plan.engine.settings) == (2, {FRACTION: 0.75})
    file.write_text(MANIFEST.replace("{name: options, configMap", "{name: other, configMap"))
    with pytest.raises(InputError, match="no such file"):
        gnomon.import_plan(file, on="H100")
