"""The training step of a question or a plan: names bound, degrees over chips, and what techniques set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.cost.profile import Profile
from gnomon.engines import TrainingEngine
from gnomon.engines.training import Grid
from gnomon.engines.training.job import check_job
from gnomon.errors import GnomonError, InputError, placed
from gnomon.planning.proposals import mend
from gnomon.planning.steps.network_words import refuse_auto
from gnomon.planning.training.binding import TrainingBinding
from gnomon.planning.training.checks import CHIPS, check_step
from gnomon.planning.training.packings import check_packing
from gnomon.planning.training.step import TrainingStep
from gnomon.sim.training import schedule, usual_schedule
from gnomon.spec import Plan, Pool, Recipe, Strategy
from gnomon.spec.questions.training import SimulateTrainingQuestion
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import TRAINING, applied, asked
from gnomon.techniques.plans import check_given, settled

SET_BY_TECHNIQUES = ("pp", "vp", "cp", "dp", "schedule", "recompute", "cp_comm")
"""Degrees and settings that techniques set unless they are given."""
USUAL_DEGREES = {"pp": 1, "vp": 1, "cp": 1}


def possible_step(
    question: SimulateTrainingQuestion, bound: TrainingBinding, places: Mapping[str, str]
) -> TrainingStep:
    """The step of a question. Errors name its flags, by `places`, and propose what was tried and is possible."""

    def otherwise(other: Mapping[str, Any]) -> TrainingStep:
        rest = {name: value for name, value in other.items() if name != "on"}
        return asked_step(replace(question, **rest), replace(bound, pool=other.get("on", bound.pool)))

    try:
        with placed(SimulateTrainingQuestion.places()):
            return asked_step(question, bound)
    except GnomonError as error:
        mend(error, bound.pool, question, otherwise)
        error.where = places.get(error.where, error.where)
        raise


def asked_step(question: SimulateTrainingQuestion, bound: TrainingBinding) -> TrainingStep:
    """The step of a question, once it is known to be possible. Errors name the fields of a plan."""
    techniques = asked(question.techniques)
    refuse_auto(techniques)
    written = question.recipe_given
    given = {
        name: value for name in SET_BY_TECHNIQUES if (value := written.get(name, getattr(question, name))) is not None
    }
    degrees: dict[str, Any] = USUAL_DEGREES | {name: given[name] for name in USUAL_DEGREES if name in given}
    degrees |= {"tp": question.tp, "ep": question.ep}
    usual = {"schedule": usual_schedule(degrees["vp"]).name, "recompute": "none", "cp_comm": "p2p"}
    schedule(given.get("schedule", usual["schedule"]), where="engine.settings.schedule")
    settings = {name: value for name, value in written.items() if value is not None} | {
        name: given.get(name, usual[name]) for name in usual
    }
    settings["sequence_parallel"] = question.sequence_parallel and degrees["tp"] > 1
    recipe = Recipe(**settings)
    load = bound.load(question.load)
    # Errors about the network come before those about chips and batch.
    even = replace(load, global_batch=recipe.micro_batch * 2 * degrees["pp"])
    check_job(bound.job(Strategy(**degrees), recipe, even, question.dtype))
    strategy = replace(_shared_out(bound.pool, degrees, question.dp), techniques=techniques)
    return step_of(bound.job(strategy, recipe, load, question.dtype), bound.engine, bound.profile, given)


def step_of(job: TrainingJob, engine: TrainingEngine, profile: Profile, given: Mapping[str, Any]) -> TrainingStep:
    """A job's step with what its techniques set, once it is known to be possible. They set nothing that was given."""
    step = TrainingStep(engine, job, profile, applied(TRAINING, job.strategy.techniques))
    step = replace(step, job=_settled(step, given)) if step.applied else step
    check_step(step.job, engine)
    check_packing(step.job.load, engine, step.job.model)
    return step


def _settled(step: TrainingStep, given: Mapping[str, Any]) -> TrainingJob:
    """The engine says of the plan with what techniques set whether it runs them there: that may be why it does or not.
    What contradicts itself under any engine comes first."""
    job, chosen, case = step.job, step.applied, step.case
    own = job.strategy, job.recipe
    chosen.check(replace(case, traits=replace(case.traits, refuses=None)))
    check_given(chosen, case, own, given)
    strategy, recipe = settled(chosen, case, own)
    chosen.check(replace(case, plans=Grid.of(strategy, recipe)))
    return replace(job, strategy=strategy, recipe=recipe)


def given_by(plan: Plan) -> dict[str, Any]:
    """What a plan says of what techniques set: its settings, and degrees that its file names or that are above 1."""
    degrees = {name: getattr(plan.strategy, name) for name in SET_BY_TECHNIQUES if hasattr(plan.strategy, name)}
    found = {name: degree for name, degree in degrees.items() if name in plan.given or degree > 1}
    settings = plan.engine.settings
    return found | {name: settings[name] for name in SET_BY_TECHNIQUES if settings.get(name) is not None}


def _shared_out(pool: Pool, degrees: Mapping[str, Any], dp: int | None) -> Strategy:
    """The degrees with the data-parallel one that they leave chips for."""
    taken = degrees["tp"] * degrees["pp"] * degrees["cp"]
    left, rest = divmod(pool.count, taken)
    if dp is None:
        if rest:
            near = [n for n in (left * taken, (left + 1) * taken) if n]
            hint = f"Use {' or '.join(f'{pool.chip.reference}:{n}' for n in near)}."
            raise InputError(f"{pool.count} chips are not a multiple of tp x pp x cp = {taken}", where=CHIPS, hint=hint)
        return Strategy(**degrees, dp=left)
    if taken * dp != pool.count:
        hint = f"Use --on {pool.chip.reference}:{taken * dp}, or leave --dp out."
        message = f"tp x pp x cp x dp = {taken * dp} chips are needed and {pool.count} given"
        raise InputError(message, where="strategy.dp", hint=hint)
    return Strategy(**degrees, dp=dp)
