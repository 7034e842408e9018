"""A shell script that runs the plan's steps with PyTorch alone and measures them, and the plan beside it."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.torch import launch
from gnomon.export.base import Rendered, check_trained_on, header, in_other_words, training_job
from gnomon.load.plan import plan_to_yaml
from gnomon.load.training import job_of
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob

NAME, ENGINE = "torchrun", "torch"
"""The target, and the training engine that its script starts."""


def render(plan: Plan, warnings: Sequence[str] = (), job: TrainingJob | None = None) -> Rendered:
    found = training_job(plan, NAME, job)
    left_out = launch.not_expressed(found, in_other_words(plan, found))
    script = launch.run_script(found, plan, header(warnings, left_out))
    return Rendered(
        files={"run.sh": script, "plan.yaml": plan_to_yaml(plan)},
        command="bash run.sh",
        engine=ENGINE,
        version=plan.engine.version if plan.engine.name == ENGINE else "",
        not_expressed=tuple(left_out),
    )


def words(plan: Plan, job: TrainingJob | None = None) -> list[str]:
    """The launch command of one node."""
    return launch.command(training_job(plan, NAME, job))


def check(plan: Plan, job: TrainingJob | None = None) -> None:
    check_trained_on(job or job_of(plan), "PyTorch")
