"""A training plan executed on this machine: one process per rank, and what rank 0 measured."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from gnomon.engines.torch.launch import WORKER, Measuring, check_runner
from gnomon.errors import GnomonError, InputError, MissingExtraError
from gnomon.spec.training_job import TrainingJob

ERROR_PREFIX = "error: "
"""Prefix of a failing rank's message."""


def run(
    job: TrainingJob,
    plan_text: str,
    tell: Callable[[str], None] = lambda text: None,
    measuring: Measuring | None = None,
) -> dict[str, Any]:
    """Measure some steps of a job, whose plan is the YAML `plan_text`. Needs PyTorch, and a GPU per rank unless it runs
    on the cpu.

    Returns the result of `gnomon.engines.torch.train.train`. Raises GnomonError with the first failing rank's message.
    """
    asked, ranks = measuring or Measuring(), job.strategy.ranks
    ready(job, asked)
    with tempfile.TemporaryDirectory(prefix="gnomon-train-") as folder:
        file, out = Path(folder, "plan.yaml"), Path(folder, "result.json")
        file.write_text(plan_text, encoding="utf-8")
        options = [str(file), "--steps", str(asked.steps), "--warmup", str(asked.warmup), "--out", str(out)]
        tell(f"starting {ranks} processes" if ranks > 1 else "starting a process")
        with Path(folder, "stderr").open("w+", encoding="utf-8") as stderr:
            options += ["--device", asked.device, "--seed", str(asked.seed)]
            code = _listen([*_launcher(ranks), *options], ranks, stderr, tell)
            if code:
                raise GnomonError(_failure(stderr, code))
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return found


def ready(job: TrainingJob, asked: Measuring) -> None:
    """Raise InputError where this machine or the runner cannot run the job."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("torch", "torch", "running a training plan")
    for name, value, least in (("steps", asked.steps, 1), ("warmup", asked.warmup, 0)):
        if value < least:
            raise InputError(f"{value} is less than {least}", where=name, hint=f"Use {least} or more.")
    check_runner(job)
    if asked.device == "cuda":
        _check_chips(job.strategy.ranks)


def _check_chips(needed: int) -> None:
    import torch

    found = torch.cuda.device_count()
    if found < needed:
        hint = "Run it on a machine that has them, use a smaller plan, or run on the cpu."
        raise InputError(f"the plan needs {needed} GPUs and this machine has {found}", where="strategy", hint=hint)


def _launcher(ranks: int) -> list[str]:
    """A single rank needs no torchrun, but a separate process, so that its memory is measured alone."""
    many = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *many, "-m", WORKER]


def _listen(command: list[str], ranks: int, stderr: IO[str], tell: Callable[[str], None]) -> int:
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // ranks))}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=threads | os.environ
    ) as started:
        assert started.stdout is not None
        for line in started.stdout:
            tell(line.rstrip())
    return started.returncode


def _failure(stderr: IO[str], code: int) -> str:
    """The message of the first rank that failed; else the last line with a letter in it."""
    stderr.seek(0)
    lines = [line.strip() for line in stderr if any(map(str.isalpha, line))]
    messages = [line.removeprefix(ERROR_PREFIX) for line in lines if line.startswith(ERROR_PREFIX)]
    return messages[0] if messages else ": ".join([f"the training processes exited with code {code}", *lines[-1:]])
