"""Exported files: what they say, that they run, and that no name can break out of its word."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnomon.api.export import export
from gnomon.engines.vllm.launch import command, not_expressed, servers
from gnomon.errors import InputError, UnknownNameError
from gnomon.export import serving_targets, target
from gnomon.load import plan_to_yaml, read_plan
from gnomon.spec import EngineChoice, Goal, Plan, Strategy


def a_plan(**changes: Any) -> Plan:
    base: dict[str, Any] = {
        "id": "plan-1",
        "model": "llama-3.1-70b",
        "chip": "H100-SXM-80GB",
        "replicas": 2,
        "strategy": Strategy(tp=4),
        "dtype": "fp8",
        "kv_dtype": "fp8",
        "engine": EngineChoice(version="0.24.0", settings={"max_num_seqs": 128, "max_model_len": 8192}),
        "goals": (Goal("ttft", "p90", 1.0),),
    }
    return Plan(**base | changes)


def custom_model(folder: Path) -> Path:
    from gnomon.catalog import model_config_path

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(model_config_path("llama-3.1-8b").read_text())
    return folder


def test_the_command() -> None:
    assert shlex.join(command(a_plan())) == (
        "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --quantization fp8 "
        "--kv-cache-dtype fp8 --max-model-len 8192 --max-num-seqs 128 --max-num-batched-tokens 8192 "
        "--gpu-memory-utilization 0.92"
    )


@pytest.mark.parametrize("name", serving_targets())
def test_every_target_keeps_the_contract(name: str, tmp_path: Path) -> None:
    own = {"sglang": ("sglang", "0.5.23"), "trtllm": ("trtllm", "1.2.1")}.get(name, ("vllm", "0.24.0"))
    plan = a_plan(engine=EngineChoice(name=own[0], version=own[1])) if name in ("sglang", "trtllm") else a_plan()
    rendered = target(name).render(plan)
    assert rendered.files
    assert all(text.endswith("\n") for text in rendered.files.values())
    assert (rendered.engine, rendered.version) == own
    assert any("goals" in line for line in rendered.not_expressed)
    assert name == target(name).NAME
    file = tmp_path / "plan.yaml"
    file.write_text(rendered.files["plan.yaml"])
    assert read_plan(file) == read_plan_of(plan, tmp_path)


def read_plan_of(plan: Plan, folder: Path) -> Plan:
    file = folder / "direct.yaml"
    file.write_text(plan_to_yaml(plan))
    return read_plan(file)


def test_unknown_targets() -> None:
    with pytest.raises(UnknownNameError, match="kubernetes"):
        export(a_plan(), to="kubernets")


def test_other_engines_are_refused() -> None:
    with pytest.raises(InputError, match="lmdeploy"):
        export(a_plan(engine=EngineChoice(name="lmdeploy")))
    with pytest.raises(InputError, match="not for sglang"):
        export(a_plan(), to="sglang")


def test_replicas_have_their_own_chips_ports_and_nodes() -> None:
    assert [(s.node, s.words[-1], s.devices) for s in servers(a_plan(replicas=5))] == [
        (0, "8000", (0, 1, 2, 3)),
        (0, "8001", (4, 5, 6, 7)),
        (1, "8000", (0, 1, 2, 3)),
        (1, "8001", (4, 5, 6, 7)),
        (2, "8000", (0, 1, 2, 3)),
    ]


def test_what_cannot_be_said() -> None:
    strategy = Strategy(tp=2, techniques=("vocabulary-pipeline",))
    lines = "\n".join(not_expressed(a_plan(strategy=strategy, dtype="int4", chip="TPU-v5e")))
    for word in ("2 replicas", "ttft_p90", "int4", "CHECKPOINT", "tpu-inference", "vocabulary-pipeline"):
        assert word in lines
    assert not_expressed(a_plan(replicas=1, goals=())) == []


def test_parallel_degrees_as_flags() -> None:
    spread = a_plan(model="qwen3-30b-a3b", strategy=Strategy(tp=2, pp=2, dp=2, ep=4), dtype="bf16", kv_dtype="bf16")
    words = shlex.join(command(spread))
    for said in (
        "--tensor-parallel-size 2 ",
        "--pipeline-parallel-size 2 ",
        "--data-parallel-size 2 ",
        "--enable-expert-parallel ",
    ):
        assert said in words
    assert not any("parallel" in line for line in not_expressed(spread))
    shared = a_plan(strategy=Strategy(tp=16), engine=EngineChoice(settings={"decode_context_parallel_size": 2}))
    assert "--decode-context-parallel-size 2" in shlex.join(command(shared))
    assert "context" not in shlex.join(command(a_plan()))


def test_a_pod_is_on_one_node() -> None:
    with pytest.raises(InputError, match=r"16 chips.*one node of 8"):
        export(a_plan(strategy=Strategy(tp=8, pp=2)), to="kubernetes")


def test_unknown_formats_are_errors() -> None:
    with pytest.raises(UnknownNameError, match="fp9"):
        command(a_plan(dtype="fp9"))


def test_kubernetes_objects() -> None:
    deployment, service = yaml.safe_load_all(export(a_plan(), to="kubernetes").files["deployment.yaml"])
    assert deployment["spec"]["replicas"] == 2
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "vllm/vllm-openai:v0.24.0"
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    assert container["args"] == [*command(a_plan())[2:], "--port", "8000"]
    assert deployment["spec"]["template"]["metadata"]["labels"] == service["spec"]["selector"]
    assert deployment["spec"]["template"]["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert "&id" not in export(a_plan(), to="kubernetes").files["deployment.yaml"]


ODD = ["a b", "a;touch pwned", "$(touch pwned)", "`touch pwned`", "quo'te\"s", "a&b|c", "*?[x]", "{a,b}", "~", "日本"]


@pytest.mark.battery(6)
@pytest.mark.parametrize("name", ODD)
def test_odd_names_stay_one_word(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = custom_model(tmp_path / "models" / name)
    plan = a_plan(model=str(folder), replicas=1, strategy=Strategy(tp=1))
    assert shlex.split(export(plan).command)[2] == str(folder)
    seen = run_script(plan, tmp_path)
    assert seen[0]["words"][1] == str(folder)
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("name", ["$(HOME)", "- dash: [yaml", "x\u2028y"])
def test_odd_names_in_kubernetes(name: str, tmp_path: Path) -> None:
    folder = custom_model(tmp_path / name)
    text = export(a_plan(model=str(folder)), to="kubernetes").files["deployment.yaml"]
    deployment, _ = yaml.safe_load_all(text)
    argument = deployment["spec"]["template"]["spec"]["containers"][0]["args"][0]
    assert argument.replace("$$(", "$(") == str(folder)
    assert "$$(" in argument or "$(" not in argument


def test_a_name_that_reads_as_an_option_stays_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    custom_model(tmp_path / "--trust-remote-code")
    monkeypatch.chdir(tmp_path)
    words = export(a_plan(model=str(Path("--trust-remote-code")))).command.split()
    assert "--trust-remote-code" not in words
    assert words[2] == str(tmp_path / "--trust-remote-code")


def test_control_characters_are_refused(tmp_path: Path) -> None:
    folder = custom_model(tmp_path / "a\nb")
    with pytest.raises(InputError, match="cannot be a model's name"):
        export(a_plan(model=str(folder)))


def test_an_id_cannot_leave_its_comment() -> None:
    script = export(a_plan(id="x\ntouch pwned", replicas=1)).files["launch.sh"]
    assert "\ntouch" not in script


def run_script(plan: Plan, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What a stand-in for vLLM was called with by launch.sh."""
    programs = stand_in(folder, "import time; time.sleep(0.3)")
    script = folder / "launch.sh"
    script.write_text(export(plan).files["launch.sh"])
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "SEEN": str(folder / "seen")}
    subprocess.run(["bash", str(script), *arguments], env=environment, check=True, timeout=20, cwd=folder)
    return [json.loads(line) for line in (folder / "seen").read_text().splitlines()]


def stand_in(folder: Path, body: str) -> Path:
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "vllm"
    note = "json.dumps({'words': sys.argv[1:], 'gpus': os.environ['CUDA_VISIBLE_DEVICES']})"
    program.write_text(
        f"#!/usr/bin/env python3\nimport json, os, sys\nopen(os.environ['SEEN'], 'a').write({note} + chr(10))\n{body}\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return programs


def test_the_script_starts_every_replica_of_a_node(tmp_path: Path) -> None:
    plan = a_plan(replicas=3)
    seen = run_script(plan, tmp_path, "0")
    assert {(run["gpus"], run["words"][-1]) for run in seen} == {("0,1,2,3", "8000"), ("4,5,6,7", "8001")}


def test_the_script_of_several_nodes_asks_for_one(tmp_path: Path) -> None:
    script = tmp_path / "launch.sh"
    script.write_text(export(a_plan(replicas=3)).files["launch.sh"])
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "NODE" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_the_script_stops_the_servers(tmp_path: Path, number: int) -> None:
    programs = stand_in(tmp_path, "open(os.environ['SEEN'] + str(os.getpid()), 'w')\nimport time; time.sleep(60)")
    script = tmp_path / "launch.sh"
    script.write_text(export(replace(a_plan(), replicas=2)).files["launch.sh"])
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "SEEN": str(tmp_path / "seen")}
    process = subprocess.Popen(
        ["bash", str(script)],
        env=environment,
        cwd=tmp_path,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    wait_for(lambda: len(list(tmp_path.glob("seen[0-9]*"))) == 2)
    process.send_signal(number)
    process.wait(timeout=10)
    servers = [int(file.name.removeprefix("seen")) for file in tmp_path.glob("seen[0-9]*")]
    wait_for(lambda: not any(alive(server) for server in servers))


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(condition: Any, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
