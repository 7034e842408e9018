"""`tune`: what to change in a deployment that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gnomon.errors import InputError
from gnomon.export.plans import named_plan
from gnomon.load.goals import goals_of
from gnomon.load.serving import absolute, task_of
from gnomon.planning.serving.changes import tuned
from gnomon.planning.side_by_side import shared_work
from gnomon.search.best_first import Progress
from gnomon.spec import Goal, Plan, Pool
from gnomon.spec.questions.plans import TuneQuestion
from gnomon.spec.tuned import TunedPlan
from gnomon.store import resolve_plan
from gnomon.store.compared import refuse_chips, started_plan


def tune(
    plan: Plan | str | Path,
    *,
    on: str | Pool | None = None,
    slo: str | Sequence[Goal] | Mapping[str, str] | None = "",
    trace: str | Path | None = None,
    rate: float | str | None = None,
    input: int | None = None,
    output: int | None = None,
    requests: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> TunedPlan:
    """What to change in a plan, or in what a command, script or manifest starts, under a load and goals.

    Knobs of the engine, settings that differ from its defaults, degrees, replicas, formats and the router are changed
    one at a time, and each change is simulated: what helps is cheaper while the goals are met, or meets them at a
    higher rate for no more money. Then the best plan of a search on the same chips, with all of these free. Load and
    goals are the plan's own where none are given; `on` names the chips of a command that does not.
    """
    question = TuneQuestion(
        plan=plan, on=on, slo=slo, trace=trace, rate=rate, input=input, output=output, requests=requests, seed=seed
    )
    return answer(question, progress=progress)


def answer(question: TuneQuestion, *, progress: Progress | None = None) -> TunedPlan:
    """The changes that a question asks for; `progress` is called with the changes tried and those there are."""
    given = question.plan
    imported = started_plan(given, question.on)
    refuse_chips(question.on, [imported])
    plan = imported.plan if imported else given if isinstance(given, Plan) else resolve_plan(given)
    if plan.trains:
        raise InputError("is a training plan", where=str(given), hint="`gnomon plan train` searches for a better one.")
    trace = None if question.trace is None else absolute(question.trace)
    load = shared_work("the plan", plan, replace(question, trace=trace))
    goals = goals_of(question.slo) or plan.goals
    with named_plan(given if imported is None else plan):
        answered = tuned(replace(plan, load=load, goals=goals, predicted={}), task_of, progress)
    return replace(answered, not_modelled=imported.unmodelled) if imported else answered
