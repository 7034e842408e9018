"""Plans or stored answers side by side: what differs, and what that does to the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.api.simulate_training import report
from gnomon.errors import InputError
from gnomon.export.plans import named_plan
from gnomon.load.answers import answer_from_dict
from gnomon.load.plan import plan_pool
from gnomon.load.serving import absolute, pools_task, task_of
from gnomon.planning.serving.one_plan import plan_under, pools_under
from gnomon.planning.side_by_side import answers_beside, check_kinds, check_work, plans_beside, shared_work
from gnomon.spec import Plan, Pool, ServingLoad
from gnomon.spec.questions.plans import CompareQuestion
from gnomon.spec.side_by_side import SideBySide
from gnomon.store.compared import PLAN, Compared, ComparedSide, compared_side, refuse_chips

PLANNED = (PLAN, "plan serve", "plan train", "simulate train")
"""What is compared by its plan, under one load or doing one job; other answers by the figures they have."""


def compare(
    *plans: Compared,
    trace: str | Path | None = None,
    rate: float | str | None = None,
    input: int | None = None,
    output: int | None = None,
    requests: int | None = None,
    seed: int | None = None,
    on: str | Pool | None = None,
) -> SideBySide:
    """Two or more plans, or answers of one command, side by side.

    Each is a file, a run's id, `last`, a plan or an answer, or a command, script or manifest as `import_plan` takes it,
    on the chips `on` where it names none. Serving plans are simulated under one load, the one that is
    given or the first plan's, with the first plan's goals; training plans do the first one's job. Answers of one
    command are compared as they are kept. Ratios are to the first.
    """
    return answer(
        CompareQuestion(
            plans=plans, trace=trace, rate=rate, input=input, output=output, requests=requests, seed=seed, on=on
        )
    )  # fmt: skip


def answer(question: CompareQuestion) -> SideBySide:
    """The comparison that a question asks for."""
    if len(question.plans) < 2:
        raise InputError("a comparison needs two or more plans or answers", where="PLAN", hint="Name two or more.")
    sides = [compared_side(given, place, question.on) for place, given in enumerate(question.plans, 1)]
    refuse_chips(question.on, [side.imported for side in sides])
    names = tuple(side.name for side in sides)
    if not question.load and not any(side.kind in PLANNED for side in sides):
        check_kinds([(side.name, side.kind) for side in sides])
        return answers_beside(sides[0].kind, names, [_kept(side) for side in sides])
    plans = [side.plan for side in sides]
    check_work(names, plans)
    trace = None if question.trace is None else absolute(question.trace)
    work = shared_work(names[0], plans[0], replace(question, trace=trace))
    plans = [replace(plan, load=work, goals=plans[0].goals, predicted={}) for plan in plans]
    found = plans_beside(names, plans, [_figures(side, plan) for side, plan in zip(sides, plans, strict=True)])
    unmodelled = dict.fromkeys(one for side in sides if side.imported for one in side.imported.unmodelled)
    return replace(found, not_modelled=tuple(unmodelled))


def _kept(side: ComparedSide) -> Mapping[str, Any]:
    """The answer as it was stored; a damaged one is refused."""
    answer_from_dict(side.answer, side.name)
    return side.answer


def _figures(side: ComparedSide, plan: Plan) -> Mapping[str, Any]:
    with named_plan(side.name if isinstance(side.given, Plan) else str(side.given)):
        if plan.pools:
            return pools_under(pools_task(plan), plan.goals)
        if isinstance(plan.load, ServingLoad):
            return plan_under(plan, task_of(plan)).to_dict()
        return report(plan, plan_pool(plan)).to_dict()
