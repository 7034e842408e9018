"""A training plan run for real: one process a rank on this machine, and what rank 0 measured."""

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

SAID = "error: "
"""How a rank's last words begin."""


def run(
    job: TrainingJob,
    plan_text: str,
    tell: Callable[[str], None] = lambda text: None,
    measuring: Measuring | None = None,
) -> dict[str, Any]:
    """Measure some steps of a job, whose plan is the YAML `plan_text`. Needs PyTorch, and a GPU a rank unless it runs
    on the cpu.

    Gives what `gnomon.engines.torch.train.train` gives. Raises GnomonError with the first failing rank's words.
    """
    asked, ranks = measuring or Measuring(), job.strategy.ranks
    ready(job, asked)
    with tempfile.TemporaryDirectory(prefix="gnomon-train-") as folder:
        file, out = Path(folder, "plan.yaml"), Path(folder, "result.json")
        file.write_text(plan_text, encoding="utf-8")
        words = [str(file), "--steps", str(asked.steps), "--warmup", str(asked.warmup), "--out", str(out)]
        tell(f"starting {ranks} processes" if ranks > 1 else "starting a process")
        with Path(folder, "stderr").open("w+", encoding="utf-8") as said:
            words += ["--device", asked.device, "--seed", str(asked.seed)]
            code = _listen([*_launcher(ranks), *words], ranks, said, tell)
            if code:
                raise GnomonError(_last_words(said, code))
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return found


def ready(job: TrainingJob, asked: Measuring) -> None:
    """Raise where this machine or the runner cannot run the job."""
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
        hint = "Run it on a machine that has them, cut the plan down, or ask for the cpu."
        raise InputError(f"the plan takes {needed} GPUs and this machine has {found}", where="strategy", hint=hint)


def _launcher(ranks: int) -> list[str]:
    """A plan of one rank needs no torchrun, but a process of its own, so that its memory is its own."""
    many = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *many, "-m", WORKER]


def _listen(command: list[str], ranks: int, said: IO[str], tell: Callable[[str], None]) -> int:
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // ranks))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=threads | os.environ) as started:
        assert started.stdout is not None
        for line in started.stdout:
            tell(line.rstrip())
    return started.returncode


def _last_words(said: IO[str], code: int) -> str:
    """What the first rank that failed said of itself; else the last line with a word in it."""
    said.seek(0)
    lines = [line.strip() for line in said if any(map(str.isalpha, line))]
    told = [line.removeprefix(SAID) for line in lines if line.startswith(SAID)]
    return told[0] if told else ": ".join([f"the training processes ended with code {code}", *lines[-1:]])
