"""What writes training plans for DeepSpeed, and reads its commands and configurations back."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.deepspeed import ENGINE as INFO
from gnomon.engines.deepspeed import launch
from gnomon.engines.deepspeed.imported import import_training, known_fields, reads
from gnomon.engines.deepspeed.options import CONFIG, VERSION
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob

__all__ = ["import_training", "known_fields", "reads"]

ENGINE, TITLE = INFO.name, INFO.title
EXPRESSES = launch.EXPRESSED


def version_of(plan: Plan) -> str:
    return VERSION


def files(job: TrainingJob, plan: Plan, notes: Sequence[str]) -> dict[str, str]:
    return {"run.sh": launch.run_script(job, plan, notes), CONFIG: launch.config_text(job)}


def command(job: TrainingJob) -> list[str]:
    return launch.command(job)


def check(job: TrainingJob) -> None:
    launch.check(job)


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    return launch.not_expressed(job, plan)
