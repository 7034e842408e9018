"""What writes training plans for Megatron-LM, and reads its commands back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.engines.megatron import ENGINE as INFO
from gnomon.engines.megatron import launch
from gnomon.engines.megatron.imported import import_training, reads
from gnomon.engines.megatron.options import COMMIT
from gnomon.engines.training.expressed import ACTIVATIONS, CHECKPOINTS, OFFLOAD
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob

__all__ = ["import_training", "reads"]

ENGINE, TITLE = INFO.name, INFO.title
EXPRESSES = (OFFLOAD, ACTIVATIONS, CHECKPOINTS)


def version_of(plan: Plan) -> str:
    return COMMIT


def files(job: TrainingJob, plan: Plan, notes: Sequence[str]) -> dict[str, str]:
    return {"run.sh": launch.run_script(job, plan, notes)}


def command(job: TrainingJob) -> list[str]:
    return launch.command(job)


def check(job: TrainingJob) -> None:
    launch.check(job)


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    return launch.not_expressed(job, plan)


def known_fields(fields: Mapping[str, Any]) -> int:
    return 0
