"""A shell script that trains with Megatron-LM on every node, and the plan beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gnomon.engines.megatron import launch
from gnomon.engines.megatron.launch import TechniqueOptions
from gnomon.engines.megatron.options import COMMIT
from gnomon.export.base import Rendered, check_trained_on, header, in_other_words, training_job
from gnomon.load.plan import plan_to_yaml
from gnomon.load.training import job_of
from gnomon.spec import Plan
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import applied

NAME = "megatron"
OFFLOAD, CHECKPOINTS = "offload-optimizer", "async-checkpointing"
UNSAID = {
    "stride": "Megatron-LM updates what it offloads on the host alone",
    "flush": "Megatron-LM overlaps gradient copies with what follows",
    "mode": "Megatron-LM copies states to the host before the next step, and overlaps only the writes with it",
}
"""Parameters of these techniques that no option says, and what is done in their place."""


def render(plan: Plan, warnings: Sequence[str] = (), job: TrainingJob | None = None) -> Rendered:
    found = training_job(plan, NAME, job)
    beside, left, unsaid = _beside(in_other_words(plan, found))
    left_out = [*launch.not_expressed(found, left, beside), *unsaid]
    script = launch.run_script(found, plan, header(warnings, left_out), beside)
    return Rendered(
        files={"run.sh": script, "plan.yaml": plan_to_yaml(plan)},
        command="bash run.sh",
        engine="megatron",
        version=COMMIT,
        not_expressed=tuple(left_out),
    )


def words(plan: Plan, job: TrainingJob | None = None) -> list[str]:
    """The launch command of one node."""
    found = training_job(plan, NAME, job)
    beside, *_ = _beside(plan)
    return launch.command(found, beside)


def check(plan: Plan, job: TrainingJob | None = None) -> None:
    found = job or job_of(plan)
    launch.check(found)
    check_trained_on(found, "Megatron-LM")


def _beside(plan: Plan) -> tuple[TechniqueOptions, Plan, list[str]]:
    """What Megatron-LM can say of the plan's techniques, the plan with those it cannot, and parameters it cannot."""
    beside, left, unsaid = TechniqueOptions(), [], []
    for text in plan.strategy.techniques:
        one, values = applied([text]).pairs[0]
        said: Mapping[str, Any] = {}
        if one.name == OFFLOAD:
            beside = replace(beside, offloaded=float(values["share"]))
            said = {"stride": 0.0, "flush": "beside"}
        elif one.name == CHECKPOINTS:
            waits = values["mode"] == "synchronous"
            beside = replace(beside, save_every=int(values["every"]), save_async=not waits)
            said = {"mode": "synchronous" if waits else "asynchronous"}
        else:
            left.append(text)
        different = {name: values[name] for name, value in said.items() if values[name] != value}
        unsaid += [f"{name}={value} of {one.name}: {UNSAID[name]}" for name, value in different.items()]
    return beside, replace(plan, strategy=replace(plan.strategy, techniques=tuple(left))), unsaid
