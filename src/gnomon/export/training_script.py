"""A shell script that every node starts to train under one engine, what it reads, a Slurm job, and the plan beside
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnomon.engines import training_operations_of, training_targets
from gnomon.engines.training.launch import SLURM, slurm_script
from gnomon.engines.training.operations import TrainingOperations
from gnomon.errors import unknown_name
from gnomon.export.base import Rendered, check_trained_on, header, in_other_words, training_job
from gnomon.load.plan import plan_to_yaml
from gnomon.load.training import job_of
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import canonical


@dataclass(frozen=True, slots=True)
class TrainingScript:
    """The target of one training engine."""

    NAME: str

    @property
    def operations(self) -> TrainingOperations:
        found = training_operations_of(training_targets().get(self.NAME, ""))
        if found is None:
            raise unknown_name("export target", self.NAME, tuple(training_targets()))
        return found

    def render(self, plan: Plan, warnings: Sequence[str] = (), job: TrainingJob | None = None) -> Rendered:
        found, engine = training_job(plan, self.NAME, job), self.operations
        left_out = engine.not_expressed(found, _left(in_other_words(plan, found), engine.EXPRESSES))
        files = engine.files(found, plan, header(warnings, left_out))
        return Rendered(
            files={**files, SLURM: slurm_script(found, plan), "plan.yaml": plan_to_yaml(plan)},
            command="bash run.sh",
            engine=engine.ENGINE,
            version=engine.version_of(plan),
            not_expressed=tuple(left_out),
        )

    def words(self, plan: Plan, job: TrainingJob | None = None) -> list[str]:
        """The launch command of one node."""
        return self.operations.command(training_job(plan, self.NAME, job))

    def check(self, plan: Plan, job: TrainingJob | None = None) -> None:
        found, engine = job or job_of(plan), self.operations
        engine.check(found)
        check_trained_on(found, engine.TITLE)


def _left(plan: Plan, expressed: Sequence[str]) -> Plan:
    """The plan with those techniques alone that an engine's options do not say."""
    left = tuple(text for text in plan.strategy.techniques if canonical(text) not in expressed)
    return replace(plan, strategy=replace(plan.strategy, techniques=left))
