"""Commands as people have them: scripts, manifests, compose files, configuration files, `docker run`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.commands import POD

import gnomon
from gnomon.cli.run import run
from gnomon.errors import InputError
from gnomon.spec import Strategy

SERVE = "vllm serve meta-llama/Llama-3.1-8B-Instruct"
SCRIPT = """\
#!/bin/bash
# vllm serve nothing --bogus "
MODEL=meta-llama/Llama-3.1-8B-Instruct
TP=${TP:-2}
ARGS=(
  --max-model-len 16k
  --gpu-memory-utilization 0.9   # most of it
)
ARGS+=(--enable-chunked-prefill)
cat <<EOF > config
vllm serve nothing --bogus "
EOF
for i in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$((i * 2)),$((i * 2 + 1)) nohup vllm serve "$MODEL" -tp $TP "${ARGS[@]}" \\
    --port $((8000 + i)) --api-key "$KEY" > log.$i 2>&1 &
done
wait
"""
GROUP = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
        containers:
          - name: leader
            image: docker.io/vllm/vllm-openai:v0.10.1
            env: [{name: MODEL, value: llama-3.1-405b}]
            command: [sh, -c, "bash serving.sh leader --ray_cluster_size=$(LWS_GROUP_SIZE);
              python3 -m vllm.entrypoints.openai.api_server --model $MODEL
              --tensor-parallel-size 8 --pipeline_parallel_size 2"]
            resources: {limits: {nvidia.com/gpu: "8"}}
    workerTemplate:
      spec:
        containers: [{name: worker, image: "docker.io/vllm/vllm-openai:v0.10.1", command: [sh, -c, "bash serving.sh"]}]
"""


def settings(command: str, **words: Any) -> dict[str, Any]:
    return dict(gnomon.import_plan(command, on="H100", **words).plan.engine.settings)


def ignored(found: Any) -> dict[str, bool]:
    return {one.option: one.affects for one in found.ignored}


def test_a_script_with_variables_lists_and_a_loop(tmp_path: Path) -> None:
    file = tmp_path / "start.sh"
    file.write_text(SCRIPT)
    found = gnomon.import_plan(file, on="H100")
    plan = found.plan
    assert (plan.model, plan.replicas, plan.strategy) == ("llama-3.1-8b", 4, Strategy(tp=2))
    assert plan.engine.settings == {"max_model_len": 16000, "gpu_memory_utilization": 0.9}
    assert found.variables["MODEL"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert found.variables["TP"] == "2"
    told = ignored(found)
    assert told["${TP:-2}"] is told["--port $((8000 + i))"] is told["--api-key $KEY"] is False


def test_a_group_of_nodes(tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(GROUP)
    found = gnomon.import_plan(file)
    assert (found.plan.model, found.plan.replicas) == ("llama-3.1-405b", 2)
    assert found.plan.strategy == Strategy(tp=8, pp=2)
    assert found.plan.chip.startswith("H100")
    assert found.variables == {"MODEL": "llama-3.1-405b"}
    assert ignored(found)["image docker.io/vllm/vllm-openai:v0.10.1"] is True


def test_a_pod_of_the_engines_own_image(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    found = gnomon.import_plan(file, on="A100-SXM-80GB")
    assert (found.plan.strategy.tp, found.plan.engine.version, found.ignored) == (4, "0.24.0", ())
    file.write_text(POD.replace("gpu: 4", "gpu: 8"))
    assert ignored(gnomon.import_plan(file, on="H200")) == {"8 chips of the container": False}


def test_a_compose_file(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(
        "services:\n  vllm:\n    image: vllm/vllm-openai:v0.24.0\n"
        "    command: --model Qwen/Qwen3-8B --max-model-len ${LEN:-8192} --dtype half\n"
        "    deploy: {replicas: 3, resources: {reservations: {devices: [{count: 1}]}}}\n  cache: {image: redis}\n"
    )
    plan = gnomon.import_plan(file, on="L40S").plan
    assert (plan.model, plan.replicas, plan.dtype) == ("qwen3-8b", 3, "fp16")
    assert plan.engine.settings == {"max_model_len": 8192}


def test_a_configuration_file_by_itself_and_by_its_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "serve.yaml").write_text(
        "model: Qwen/Qwen3-30B-A3B\ntensor-parallel-size: 4\nenable_expert_parallel: true\n"
        "compilation-config: {max_cudagraph_capture_size: 8}\nhost: 0.0.0.0\n"
    )
    alone = gnomon.import_plan("serve.yaml", on="H200").plan
    assert (alone.strategy, dict(alone.engine.settings)) == (Strategy(tp=4, ep=4), {"max_cudagraph_capture_size": 8})
    flag = gnomon.import_plan("vllm serve --config serve.yaml -tp 8", on="H200").plan
    assert flag.strategy == Strategy(tp=8, ep=8)  # the command line wins, as in vLLM


def test_docker_run() -> None:
    found = gnomon.import_plan(
        "docker run --gpus '\"device=0,1\"' -v ~/.cache:/cache -e VLLM_USE_V1=1 -p 8000:8000 --ipc=host "
        "vllm/vllm-openai:latest --model mistralai/Mistral-7B-v0.1 -tp=2",
        on="A100",
    )
    assert (found.plan.model, found.plan.strategy.tp) == ("mistral-7b-v0.1", 2)
    assert ignored(found) == {"VLLM_USE_V1=1": True}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--max_model_len=32K", {"max_model_len": 32768}),
        ("--max-model-len 32k", {"max_model_len": 32000}),
        ("--max-num-batched-tokens 4k", {"max_num_batched_tokens": 4000}),
        ("--max-model-len auto", {}),
        ("--no-async-scheduling", {"async_scheduling": False}),
        ("--enable_prefix_caching", {"enable_prefix_caching": True}),
        ("--gpu-memory 0.8", {"gpu_memory_utilization": 0.8}),
        ("--cudagraph-capture-sizes 1 2 64 --port 80", {"max_cudagraph_capture_size": 64}),
        ("-cc.max_cudagraph_capture_size=32 ", {"max_cudagraph_capture_size": 32}),
        ("--compilation-config.cudagraph_capture_sizes '[1, 16]'", {"max_cudagraph_capture_size": 16}),
        ("--quantization-config.moe.activation mxfp8", {"moe_activation": "mxfp8"}),
        ("--moe-backend triton", {"moe_backend": "triton"}),
        ("-O3 --scheduling-policy priority --hf-token --seed 1", {"scheduling_policy": "priority"}),
    ],
)
def test_values_are_read_as_vllm_reads_them(words: str, wanted: dict[str, Any]) -> None:
    assert settings(f"{SERVE} {words}") == wanted


@pytest.mark.parametrize(
    ("words", "dtype", "kv_dtype"),
    [
        ("", "bf16", ""),
        ("--dtype half", "fp16", ""),
        ("-q fp8 --kv-cache-dtype fp8_e4m3", "fp8", "fp8"),
        ("--dtype bfloat16 --kv-cache-dtype auto", "bf16", ""),
    ],
)
def test_formats(words: str, dtype: str, kv_dtype: str) -> None:
    plan = gnomon.import_plan(f"{SERVE} {words}", on="H100").plan
    assert (plan.dtype, plan.kv_dtype) == (dtype, kv_dtype)


def test_weights_that_cannot_be_opened_are_named() -> None:
    plan = gnomon.import_plan("vllm serve some/model-awq -q awq", on="H100", model="llama-3.1-70b", dtype="int4").plan
    assert (plan.model, plan.dtype, plan.checkpoint) == ("llama-3.1-70b", "int4", "some/model-awq")


@pytest.mark.parametrize("on", ["H100", "H100:2"])
def test_replicas_follow_from_the_chips(on: str) -> None:
    assert gnomon.import_plan(SERVE, on=on).plan.replicas == (2 if ":" in on else 1)


@pytest.mark.parametrize(
    "text",
    [
        f"A='{SERVE}'; exec {SERVE}",
        f"sudo -E env CUDA_VISIBLE_DEVICES=0 {SERVE}",
        f"bash -lc '{SERVE} --port 80'",
        f"if true; then {SERVE}; else {SERVE}; fi",
        f"{SERVE} & {SERVE} --headless --node-rank $RANK",
        f"cd /srv && {SERVE} 2>&1 | tee log",
        f'pip install vllm; echo {SERVE}; {SERVE} "$@"',
        "uv run python -m vllm.entrypoints.openai.api_server --model llama-3.1-8b",
        "python3 /opt/vllm/entrypoints/openai/api_server.py --model llama-3.1-8b",
    ],
)
def test_one_server_however_it_is_started(text: str) -> None:
    plan = gnomon.import_plan(text, on="H100").plan
    assert (plan.model, plan.replicas) == ("llama-3.1-8b", 1)


def test_a_plan_of_an_import_goes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    assert run(["import", f"{SERVE} -tp 2 --max-model-len 4k", "--on", "H100", "--out", str(file)]) == 0
    assert run(["export", str(file)]) == 0
    assert run(["export", "last"]) == 0
    assert capsys.readouterr().out.count("--tensor-parallel-size 2") == 2


SGLANG = (
    "docker run --gpus 2 lmsysorg/sglang:v0.5.23 python3 -m sglang.launch_server --model-path llama-3.1-8b --tp 2 "
    '--cuda-graph-config \'{"decode": {"max_bs": 8}}\' --cuda-graph-bs-decode 1 2 --dp-size 1 --log-level=info\n'
)
TRTLLM = """\
cat > a.yaml << EOF
kv_cache_config: {free_gpu_memory_fraction: 0.8, dtype: fp8}
cuda_graph_config:
  batch_sizes: [1, 2, 4]
EOF
trtllm-serve serve llama-3.1-8b --tp_size 2 --max_batch_size 64 --config a.yaml
"""


@pytest.mark.parametrize("text", [SCRIPT, GROUP, POD, SGLANG, TRTLLM])
def test_damaged_files_are_read_or_refused(text: str, tmp_path: Path) -> None:
    draw, file = random.Random(5), tmp_path / ("x.yaml" if text in (GROUP, POD) else "x.sh")
    refused = 0
    for _ in range(150):
        at, until = sorted(draw.randrange(len(text)) for _ in range(2))
        junk = "".join(draw.choice("'\"$(){}[]-:;&|<>\\ \n#`=0a") for _ in range(draw.randrange(4)))
        file.write_text(draw.choice((text[:at], text[:at] + junk + text[until:], text[:at] + junk + text[at:])))
        try:
            gnomon.import_plan(file, on="H100")
        except InputError as error:
            refused += 1
            assert error.message
    assert 20 < refused < 150
