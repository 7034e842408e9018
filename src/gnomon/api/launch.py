"""Starts a plan's replicas as real engine processes on this machine, or says why it cannot."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gnomon.api.results import Result
from gnomon.catalog import model_title
from gnomon.engines.vllm.launch import Replica, not_expressed, replicas, version_of
from gnomon.errors import UnknownNameError
from gnomon.export.base import in_other_words, require_techniques
from gnomon.export.vllm import require_vllm
from gnomon.load.chips import chip as find_chip
from gnomon.spec import Plan
from gnomon.store import resolve_plan

PATIENCE_S = 30.0
"""How long the other replicas may take to stop after one has ended."""
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True, kw_only=True)
class Launched(Result):
    """What was started, or would be. `why_not` is empty when nothing stands in the way."""

    SCHEMA = "launch"
    title: str
    plan: str
    commands: tuple[str, ...]
    nodes: tuple[int, ...]
    """The node of each command, from 0."""
    engine: str
    version: str
    started: bool
    why_not: str
    notes: tuple[str, ...]
    not_expressed: tuple[str, ...]
    exit_code: int | None = None


def launch(plan: Plan | str | Path, *, dry_run: bool = False, tell: Callable[[str], None] | None = None) -> Launched:
    """Run every replica of a plan until it ends; signals are passed on to them.

    Nothing is started in a dry run, or where the engine or the GPUs are missing: `why_not` says so.
    `tell` is called with each command as it starts.
    """
    chosen = plan if isinstance(plan, Plan) else resolve_plan(plan)
    require_vllm(chosen)
    require_techniques(chosen)
    servers = replicas(chosen)
    devices = gpu_names()
    why_not = "this is a dry run" if dry_run else _obstacle(chosen, servers, devices)
    code = None if why_not else _run([(_words(server), server) for server in servers], tell or (lambda _: None))
    return Launched(
        title=f"{model_title(chosen.model)}: vLLM on {chosen.replicas} x {chosen.strategy.ranks} {chosen.chip}",
        plan=chosen.id if isinstance(plan, Plan) else str(plan),
        commands=tuple(server.shell for server in servers),
        nodes=tuple(server.node for server in servers),
        engine="vllm",
        version=version_of(chosen),
        started=not why_not,
        why_not=why_not,
        notes=tuple(_notes(chosen, devices)),
        not_expressed=tuple(not_expressed(in_other_words(chosen))),
        exit_code=code,
    )


def gpu_names() -> list[str]:
    """The NVIDIA GPUs the driver reports; none where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]


def _obstacle(plan: Plan, servers: Sequence[Replica], devices: Sequence[str]) -> str:
    if not devices:
        return "no NVIDIA GPU answers on this machine (nvidia-smi)"
    if len(devices) < plan.chips or any(server.node for server in servers):
        return f"the plan needs {plan.chips} GPUs and this machine has {len(devices)}"
    if not _program():
        return "vLLM is not installed: pip install 'gnomon[vllm]'"
    return ""


def _notes(plan: Plan, devices: Sequence[str]) -> list[str]:
    notes = []
    for name in sorted(set(devices)):
        try:
            known = find_chip(name).name
        except UnknownNameError:
            known = name
        if known != find_chip(plan.chip).name:
            notes.append(f"the plan was made for {plan.chip}, this machine has {name}: its figures do not hold here")
    return notes


def _program() -> list[str]:
    found = shutil.which("vllm")
    if found:
        return [found]
    return [sys.executable, "-m", "vllm.entrypoints.cli.main"] if importlib.util.find_spec("vllm") else []


def _words(server: Replica) -> list[str]:
    return [*_program(), *server.words[1:]]


def _run(commands: Sequence[tuple[list[str], Replica]], tell: Callable[[str], None]) -> int:
    """Exit code of the first replica that ended; the others are then asked to stop."""
    running: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for process in running:
            if process.poll() is None:
                process.send_signal(number)

    numbers = [getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name)]
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        for words, server in commands:
            tell(server.shell)
            running.append(_start(words, server))
        return _wait(running)
    finally:
        _stop(running)
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(words: list[str], server: Replica) -> subprocess.Popen[bytes]:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, server.devices))}
    return subprocess.Popen(words, env=environment, start_new_session=True)


def _wait(running: Sequence[subprocess.Popen[bytes]]) -> int:
    while True:
        for process in running:
            code = process.poll()
            if code is not None:
                return code if code >= 0 else 128 - code
        time.sleep(0.2)


def _stop(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in running:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + PATIENCE_S
    for process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
