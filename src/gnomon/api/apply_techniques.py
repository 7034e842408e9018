"""Which techniques help a plan most, each by itself and in pairs."""

from __future__ import annotations

from pathlib import Path

from gnomon.errors import InputError
from gnomon.export.plans import named_plan
from gnomon.load.serving import task_of
from gnomon.load.training import planned_binding
from gnomon.planning.comparison.applying import ServedPlan, TrainedPlan, applied_to
from gnomon.planning.comparison.several import Progress
from gnomon.planning.serving.changes import check_simulated, searched_again
from gnomon.spec import Plan, ServingLoad
from gnomon.spec.applied import HelpfulTechniques
from gnomon.spec.questions.plans import ApplyQuestion
from gnomon.store import resolve_plan


def apply(plan: Plan | str | Path, *, progress: Progress | None = None) -> HelpfulTechniques:
    """Which techniques help a plan most: its work planned again on its chips with each, and with pairs.

    A gain is of the time of a training step, or of the highest rate within the goals of a serving plan, between the
    best plan with the technique and the best without. Pairs are of the four techniques that help most by themselves.
    """
    return answer(ApplyQuestion(plan=plan), progress=progress)


def answer(question: ApplyQuestion, *, progress: Progress | None = None) -> HelpfulTechniques:
    """The techniques that a question asks for; `progress` is called with the plans searched and those there are."""
    given = question.plan
    plan = given if isinstance(given, Plan) else resolve_plan(given)
    with named_plan(given):
        if plan.trains:
            return applied_to(plan, TrainedPlan(plan=plan, bound=planned_binding(plan)), progress)
        if not isinstance(plan.load, ServingLoad):
            hint = "Give a plan of `gnomon simulate serve` or `plan serve`; `gnomon try` compares one step."
            raise InputError("holds a step and no load, and techniques are compared under one", where="load", hint=hint)
        check_simulated(plan)
        return applied_to(plan, ServedPlan(task=searched_again(plan, task_of(plan))), progress)
