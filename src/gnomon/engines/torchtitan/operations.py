"""What writes training plans as recipes of TorchTitan, and reads its commands and files back."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.torchtitan import ENGINE as INFO
from gnomon.engines.torchtitan import launch
from gnomon.engines.torchtitan.imported import import_training, known_fields, reads
from gnomon.engines.torchtitan.options import RECIPE, VERSION
from gnomon.engines.training.expressed import CHECKPOINTS, OFFLOAD, PARAMETERS
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob

__all__ = ["import_training", "known_fields", "reads"]

ENGINE, TITLE = INFO.name, INFO.title
EXPRESSES = (OFFLOAD, PARAMETERS, CHECKPOINTS)


def version_of(plan: Plan) -> str:
    return VERSION


def files(job: TrainingJob, plan: Plan, notes: Sequence[str]) -> dict[str, str]:
    return {"run.sh": launch.run_script(job, plan, notes), RECIPE: launch.recipe_text(job, plan, notes)}


def command(job: TrainingJob) -> list[str]:
    return launch.command(job)


def check(job: TrainingJob) -> None:
    launch.check(job)


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    return launch.not_expressed(job, plan)
