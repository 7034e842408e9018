"""Starts a plan's replicas as real engine processes on this machine, or says why it cannot."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from gnomon.catalog import model_title
from gnomon.engines import planned_training_engine
from gnomon.engines.operations import Operations, Server, Servers
from gnomon.errors import InputError, UnknownNameError
from gnomon.execution.startable import Fits, checked, located, refuse_pools
from gnomon.export import serving_targets, target
from gnomon.export.base import in_other_words, operated, require_techniques
from gnomon.export.plans import named_plan, usual
from gnomon.load import model as load_model
from gnomon.load.chips import chip as find_chip
from gnomon.spec import Plan
from gnomon.spec.answers import Result
from gnomon.spec.questions.running import LaunchQuestion
from gnomon.store import resolve_plan

MOST_COMMANDS = 4096
NVIDIA_DEVICES = "CUDA_VISIBLE_DEVICES"
"""The variable that selects the only kind of GPU that is detected here."""
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
    targets: tuple[str, ...] = ()
    """What `gnomon export` writes the plan for."""
    exit_code: int | None = None


def launched(question: LaunchQuestion, fits: Fits, tell: Callable[[str], None]) -> Launched:
    """Run every replica of a plan until it ends, or say why it cannot be; `fits` says of a replica whether it does."""
    plan, dry_run, force = question.plan, question.dry_run, question.force
    if force and not dry_run:
        hint = "Leave it out, or give --dry-run."
        raise InputError("only a dry run shows a plan that would not run", where="--force", hint=hint)
    found = plan if isinstance(plan, Plan) else resolve_plan(plan)
    with named_plan(plan):
        if found.trains:
            planned_training_engine(found.engine)
            hint = "Write its script with `gnomon export` and start that."
            raise InputError("a plan for training is not started from here", where="load", hint=hint)
        refuse_pools(found, "started")
        chosen, warnings = checked(located(found), usual(found), force, fits)
        engine = operated(chosen)
        require_techniques(chosen)
        started = engine.servers(chosen)
        _check_number(started)
    devices = gpu_names()
    why_not = "this is a dry run" if dry_run else _obstacle(chosen, engine, started, devices)
    code = None if why_not else _run([(_words(engine, server), server) for server in started], tell)
    commands = [(server.shell, server.node) for server in started]
    return Launched(
        title=f"{_title(chosen)}: {engine.TITLE} on {chosen.replicas} x {chosen.ranks} {chosen.chip}",
        plan=chosen.id if isinstance(plan, Plan) else str(plan),
        commands=tuple(shell for shell, _ in commands),
        nodes=tuple(node for _, node in commands),
        engine=engine.NAME,
        version=engine.version_of(chosen),
        started=not why_not,
        why_not=why_not,
        notes=(*(f"WARNING: {line}" for line in warnings), *_notes(chosen, devices)),
        not_expressed=tuple(engine.not_expressed(in_other_words(chosen))),
        targets=() if warnings else tuple(_targets(chosen)),
        exit_code=code,
    )


def _title(plan: Plan) -> str:
    """The model as people call it: a known one by its title, another by its own name."""
    name = load_model(plan.model).name
    try:
        return model_title(name)
    except UnknownNameError:
        return name


def _targets(plan: Plan) -> Iterator[str]:
    for name in serving_targets():
        with suppress(InputError):
            target(name).render(plan)
            yield name


def _check_number(started: Servers) -> None:
    """Every command is listed, so a plan of very many is refused before they are made."""
    count = started.where.replicas * started.where.nodes_each
    if count > MOST_COMMANDS:
        raise InputError(
            f"{count:,} commands are too many to list",
            where="replicas",
            hint="`gnomon export` writes one script for all nodes, and --to kubernetes one manifest.",
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


def _obstacle(plan: Plan, engine: Operations, started: Servers, devices: Sequence[str]) -> str:
    if started.visible != NVIDIA_DEVICES:
        return f"{plan.chip} is not an NVIDIA GPU, the only kind detected here: run launch.sh of `gnomon export`"
    if not devices:
        return "nvidia-smi reports no GPU on this machine"
    if len(devices) < plan.chips or started.where.nodes > 1:
        return f"the plan needs {plan.chips} GPUs and this machine has {len(devices)}"
    if not engine.program():
        return f"{engine.TITLE} is not installed: {engine.INSTALL}"
    return ""


def _notes(plan: Plan, devices: Sequence[str]) -> list[str]:
    notes = []
    for name in sorted(set(devices)):
        try:
            known = find_chip(name).name
        except UnknownNameError:
            known = name
        if known != find_chip(plan.chip).name:
            notes.append(
                f"the plan was made for {plan.chip}, this machine has {name}: its predictions do not apply here"
            )
    return notes


def _words(engine: Operations, server: Server) -> list[str]:
    return [*engine.program(), *server.words[1:]]


def _run(commands: Sequence[tuple[list[str], Server]], tell: Callable[[str], None]) -> int:
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


def _start(words: list[str], server: Server) -> subprocess.Popen[bytes]:
    environment = os.environ | server.variables
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
