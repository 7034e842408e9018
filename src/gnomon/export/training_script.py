"""A shell script that every node starts to train under one engine, what it reads, a Slurm job, and the plan beside
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnomon.engines import training_operations_of, training_targets
from gnomon.engines.training.launch import SLURM, slurm_script
from gnomon.engines.training.operations import CHECKPOINTS, OFFLOAD, TechniqueOptions, TrainingOperations
from gnomon.errors import unknown_name
from gnomon.export.base import Rendered, check_trained_on, header, in_other_words, training_job
from gnomon.load.plan import plan_to_yaml
from gnomon.load.training import job_of
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import applied


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
        extra, left = _beside(in_other_words(plan, found), engine.EXPRESSES)
        left_out = engine.not_expressed(found, left, extra)
        files = engine.files(found, plan, header(warnings, left_out), extra)
        return Rendered(
            files={**files, SLURM: slurm_script(found, plan), "plan.yaml": plan_to_yaml(plan)},
            command="bash run.sh",
            engine=engine.ENGINE,
            version=engine.version_of(plan),
            not_expressed=tuple(left_out),
        )

    def words(self, plan: Plan, job: TrainingJob | None = None) -> list[str]:
        """The launch command of one node."""
        found, engine = training_job(plan, self.NAME, job), self.operations
        return engine.command(found, _beside(plan, engine.EXPRESSES)[0])

    def check(self, plan: Plan, job: TrainingJob | None = None) -> None:
        found, engine = job or job_of(plan), self.operations
        engine.check(found)
        check_trained_on(found, engine.TITLE)


def _beside(plan: Plan, expressed: Sequence[str]) -> tuple[TechniqueOptions, Plan]:
    """What an engine can say of the plan's techniques, and the plan with those it cannot."""
    extra, left = TechniqueOptions(), []
    for text in plan.strategy.techniques:
        one, values = applied([text]).pairs[0]
        if one.name not in expressed:
            left.append(text)
        elif one.name == OFFLOAD:
            stride, flush = float(values["stride"]), str(values["flush"])
            extra = replace(extra, offloaded=float(values["share"]), stride=stride, flush=flush)
        elif one.name == CHECKPOINTS:
            extra = replace(extra, save_every=int(values["every"]), save_mode=str(values["mode"]))
    return extra, replace(plan, strategy=replace(plan.strategy, techniques=tuple(left)))
