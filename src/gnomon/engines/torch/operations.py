"""What writes training plans for the built-in runner, and reads its commands back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.engines.torch import ENGINE as INFO
from gnomon.engines.torch import launch, techniques
from gnomon.engines.training.launched import LaunchedProgram
from gnomon.engines.training.operations import ImportedTraining, TrainingNames
from gnomon.errors import InputError
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob

ENGINE, TITLE = INFO.name, INFO.title
EXPRESSES: tuple[str, ...] = techniques.names()


def version_of(plan: Plan) -> str:
    return plan.engine.version if plan.engine.name == ENGINE else ""


def files(job: TrainingJob, plan: Plan, notes: Sequence[str]) -> dict[str, str]:
    return {"run.sh": launch.run_script(job, plan, notes)}


def command(job: TrainingJob) -> list[str]:
    return launch.command(job)


def check(job: TrainingJob) -> None:
    """What the runner does not support is refused where its command is written."""


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    return launch.not_expressed(job, plan)


def reads(program: LaunchedProgram) -> bool:
    return program.program == launch.WORKER


def known_fields(fields: Mapping[str, Any]) -> int:
    return 0


def import_training(program: LaunchedProgram, names: TrainingNames) -> ImportedTraining:
    """The plan that the runner is given, beside options that all have a value."""
    words = program.arguments
    behind = {at + 1 for at, word in enumerate(words) if word.startswith("-") and "=" not in word}
    named = next((word for at, word in enumerate(words) if at not in behind and not word.startswith("-")), "")
    if not named:
        raise InputError("the command names no plan", hint=f"`torchrun … -m {launch.WORKER} plan.yaml` does.")
    return ImportedTraining(plan_file=named.rpartition("/")[2] if "$" in named else named)
