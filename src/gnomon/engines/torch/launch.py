"""The built-in runner under torchrun: its command and its script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.engines.torch import checks
from gnomon.engines.training.job import check_job
from gnomon.engines.training.launch import common_not_expressed, headline, script, sequences_not_expressed, torchrun
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob

WORKER = "gnomon.engines.torch.worker"
STEPS, WARMUP = 8, 3
"""Measured steps, and warm-up steps before them."""
_HERE = '"$(dirname -- "${BASH_SOURCE[0]}")"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """How many steps are run and measured, and on which device."""

    steps: int = STEPS
    warmup: int = WARMUP
    """Steps before the measured ones."""
    seed: int = 0
    device: str = "cuda"
    """cuda or cpu."""


def command(job: TrainingJob) -> list[str]:
    """The command of the built-in runner, to be run in the folder of plan.yaml."""
    check_runner(job)
    return [*torchrun(job), "-m", WORKER, "plan.yaml", *(word for words in _arguments() for word in words)]


def run_script(job: TrainingJob, plan: Plan, notes: Sequence[str] = ()) -> str:
    """`run.sh`, which every node starts beside plan.yaml."""
    check_runner(job)
    program = f"-m {WORKER} {_HERE}/plan.yaml"
    return script(job, headline(plan, "PyTorch"), setup=(), program=program, arguments=_arguments(), notes=notes)


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    """Parts of the plan that the built-in runner does not execute."""
    first = f"data and a full run: {WARMUP} warm-up steps and {STEPS} measured ones, on synthetic tokens"
    return [first, *sequences_not_expressed(job)] + common_not_expressed(job, plan, "torch", checks.SUPPORTED)


def _arguments() -> list[list[str]]:
    return [["--steps", str(STEPS)], ["--warmup", str(WARMUP)], ["--out", "result.json"]]


def check_runner(job: TrainingJob) -> None:
    """Raise InputError where the built-in runner does not support the job."""
    check_job(job)
    checks.check_job(job)
