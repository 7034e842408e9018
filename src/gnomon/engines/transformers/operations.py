"""What writes training plans for the transformers Trainer, and reads its commands and configurations back."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.transformers import ENGINE as INFO
from gnomon.engines.transformers import launch
from gnomon.engines.transformers.imported import import_training, known_fields, reads
from gnomon.engines.transformers.options import VERSION
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob

__all__ = ["import_training", "known_fields", "reads"]

ENGINE, TITLE = INFO.name, INFO.title
EXPRESSES = launch.EXPRESSED


def version_of(plan: Plan) -> str:
    return VERSION


def files(job: TrainingJob, plan: Plan, notes: Sequence[str]) -> dict[str, str]:
    return launch.files(job, plan, notes)


def command(job: TrainingJob) -> list[str]:
    return launch.command(job)


def check(job: TrainingJob) -> None:
    launch.check(job)


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    return launch.not_expressed(job, plan)
