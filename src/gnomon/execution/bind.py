"""Names of training made into objects: the model, the chips with their profile, the engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gnomon.cost.profile import profile_for
from gnomon.cost.profile_file import Profile
from gnomon.engines import TrainingEngine, planned_training_engine, training_engine
from gnomon.errors import named_by
from gnomon.load.fleet import parse_pool
from gnomon.load.training import job_of, named_model
from gnomon.planning.training.asked import given_by, step_of
from gnomon.planning.training.binding import TrainingBinding
from gnomon.planning.training.step import TrainingStep
from gnomon.spec import EngineChoice, Model, Plan, Pool


def bind_training(model: str | Path | Model, on: str | Pool, engine: str, where: str = "--on") -> TrainingBinding:
    """A question's names, each looked up once; `where` is the flag of the chips."""
    pool = parse_pool(on, where)
    with named_by("--engine"):
        chosen = training_engine(engine)
    name, found = named_model(model)
    return TrainingBinding(name=name, model=found, pool=pool, engine=chosen, profile=_profile(pool, chosen, found))


def planned_step(plan: Plan, engine: str = "", pool: Pool | None = None) -> TrainingStep:
    """The step of a plan, under its own engine or today's version of another one. Raises where it is not possible."""
    if engine:
        plan = replace(plan, engine=EngineChoice(name=engine, settings=plan.engine.settings))
    job, chosen = job_of(plan, pool), planned_training_engine(plan.engine)
    return step_of(job, chosen, _profile(job.pool, chosen, job.model), given_by(plan))


def _profile(pool: Pool, engine: TrainingEngine, model: Model) -> Profile:
    return profile_for(pool.chip, engine.traits(model).framework)
