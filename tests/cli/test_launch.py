"""`gnomon launch` with stand-ins for the driver and for vLLM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gnomon.api.launch import launch
from gnomon.spec import EngineChoice, Plan, Strategy

PLAN = Plan(
    id="plan-1",
    model="llama-3.1-8b",
    chip="H100-SXM-80GB",
    replicas=2,
    strategy=Strategy(tp=1),
    dtype="bf16",
    kv_dtype="bf16",
    engine=EngineChoice(version="0.24.0", settings={"max_model_len": 8192}),
)
NOTE = (
    "open(os.environ['SEEN'], 'a').write(os.environ['CUDA_VISIBLE_DEVICES'] + ' ' + ' '.join(sys.argv[1:]) + chr(10))"
)


def program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{body}\n")
    file.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with two H100s and a `vllm` that notes its words."""
    programs = tmp_path / "bin"
    program(programs, "nvidia-smi", "print('NVIDIA H100 80GB HBM3\\nNVIDIA H100 80GB HBM3')")
    program(programs, "vllm", NOTE)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return tmp_path


def test_a_dry_run_starts_nothing(machine: Path) -> None:
    result = launch(PLAN, dry_run=True)
    assert not result.started
    assert len(result.commands) == 2
    assert not (machine / "seen").exists()


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = launch(PLAN)
    assert not result.started
    assert "reports no GPU" in result.why_not


def test_too_few_gpus(machine: Path) -> None:
    program(machine / "bin", "nvidia-smi", "print('NVIDIA H100 80GB HBM3')")
    assert launch(PLAN).why_not == "the plan needs 2 GPUs and this machine has 1"


def test_a_broken_driver_is_no_gpu(machine: Path) -> None:
    program(machine / "bin", "nvidia-smi", "sys.exit(9)")
    assert "reports no GPU" in launch(PLAN).why_not


def test_another_gpu_is_noted(machine: Path) -> None:
    program(machine / "bin", "nvidia-smi", "print('NVIDIA H200\\nNVIDIA H200')")
    assert "this machine has NVIDIA H200" in launch(PLAN, dry_run=True).notes[0]


def test_both_replicas_start(machine: Path) -> None:
    program(machine / "bin", "vllm", f"{NOTE}\ntime.sleep(0.5)")
    told: list[str] = []
    result = launch(PLAN, tell=told.append)
    assert result.started
    assert result.exit_code == 0
    assert told == list(result.commands)
    lines = sorted((machine / "seen").read_text().splitlines())
    assert [line.split()[0] for line in lines] == ["0", "1"]
    assert all("serve meta-llama/Llama-3.1-8B-Instruct" in line for line in lines)


def test_the_exit_code_comes_through(machine: Path) -> None:
    program(machine / "bin", "vllm", "sys.exit(17)")
    assert launch(PLAN).exit_code == 17


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on(machine: Path, number: int, tmp_path: Path) -> None:
    body = f"signal.signal({number}, lambda *_: sys.exit(5))\n{NOTE}\ntime.sleep(60)"
    program(machine / "bin", "vllm", body)
    plan = tmp_path / "plan.yaml"
    from gnomon.load import write_plan

    write_plan(PLAN, plan)
    process = subprocess.Popen(
        [sys.executable, "-m", "gnomon", "launch", str(plan), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 15
    while not (machine / "seen").exists() or len((machine / "seen").read_text().splitlines()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 5
    assert json.loads(out)["exit_code"] == 5
