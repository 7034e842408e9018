"""Names of a training plan or question made into objects: the model, the chips with their profile, the engine, the
recipe.

Names end here: what is bound is not looked up again below.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gnomon.cost.profile import Profile
from gnomon.engines import TrainingEngine, planned_training_engine, training_engine
from gnomon.engines.training.case import TrainingCase
from gnomon.errors import InputError, named_by
from gnomon.load.deployments import POWER_LIMIT, limited
from gnomon.load.fleet import parse_pool
from gnomon.load.hf import config_of
from gnomon.load.hf import model as load_model
from gnomon.load.objects import checked_model
from gnomon.load.plan import plan_pool
from gnomon.load.profiles import profile_for
from gnomon.load.recipe import recipe_of
from gnomon.load.together import trained_network
from gnomon.load.traces import known_lengths, located
from gnomon.planning.power_limit import under_limit
from gnomon.planning.training.asked import given_by, step_of
from gnomon.planning.training.binding import TrainingBinding
from gnomon.planning.training.packings import settled
from gnomon.planning.training.step import TrainingStep
from gnomon.spec import EngineChoice, Model, Plan, Pool, TrainingLoad
from gnomon.spec.loads.lengths import lengths_of
from gnomon.spec.loads.lengths.base import Lengths
from gnomon.spec.loads.lengths.uniform import Uniform
from gnomon.spec.loads.sequences import Sequences
from gnomon.spec.questions.training import TrainingQuestion
from gnomon.spec.training import PRECISION, RANDOM
from gnomon.spec.training_job import TrainingJob
from gnomon.techniques import TRAINING, applied

TEXT = TrainingLoad(seq=1, global_batch=1)
"""Text alone, of any length."""


def named_model(model: str | Path | Model) -> tuple[str, Model]:
    """A model and what it is called in an answer."""
    return (model.name, checked_model(model)) if isinstance(model, Model) else (str(model), load_model(model))


def job_of(plan: Plan, pool: Pool | None = None, engine: TrainingEngine | None = None) -> TrainingJob:
    """The job that a plan names, on its own chips or on `pool`, under its own engine where none is given. Nothing of it
    is checked but that it trains."""
    if not isinstance(plan.load, TrainingLoad):
        raise InputError("the plan is not for training", where="load", hint="Give it seq and global_batch.")
    if plan.replicas != 1:
        hint = "Say how many copies learn together as strategy.dp."
        raise InputError(f"{plan.replicas} is not 1, as training needs it", where="replicas", hint=hint)
    model, load = trained_network(load_model(plan.model), plan.load), plan.load
    if load.sequences is not None:
        known: Lengths = known_lengths(load.sequences.lengths)
        load = replace(load, sequences=replace(load.sequences, lengths=known))
        load = settled(load, engine or planned_training_engine(plan.engine), model)
    return TrainingJob(
        name=plan.model,
        model=model,
        pool=pool or plan_pool(plan),
        strategy=plan.strategy,
        recipe=recipe_of(plan.engine.settings),
        load=load,
        dtype=plan.dtype,
        techniques=applied(TRAINING, plan.strategy.techniques).values,
        engine=plan.engine.label,
        config=config_of(plan.model),
    )


def with_lengths(bound: TrainingBinding, question: TrainingQuestion) -> TrainingBinding:
    """A question's names with the lengths of its sequences, their file read."""
    if question.lengths is None:
        return bound
    sequences = Sequences(
        lengths=read_lengths(question.lengths, "--lengths"),
        packing=question.packing or "",
        document_masking=question.document_masking,
        sampling=question.sampling or RANDOM,
        seed=question.seed,
    )
    return replace(bound, sequences=sequences)


def read_lengths(given: int | str, where: str) -> Lengths:
    """A distribution, its file named by its whole path and read; a single number is one too."""
    found = lengths_of(given, where)
    if isinstance(found, int):
        return Uniform(low=found, high=found)
    known: Lengths = known_lengths(located(found))
    return known


def bind_training(
    model: str | Path | Model, on: str | Pool, engine: str, where: str = "--on", power_limit_w: float | None = None,
    load: TrainingLoad = TEXT,
) -> TrainingBinding:  # fmt: skip
    """A question's names, each looked up once; `where` is the flag of the chips. `load` says what of the model is
    trained."""
    pool = limited(parse_pool(on, where), power_limit_w)
    with named_by("--engine"):
        chosen = training_engine(engine)
    name, found = named_model(model)
    found = trained_network(found, load)
    pool, profile = under_limit(pool, _profile(pool, chosen, found), POWER_LIMIT)
    return TrainingBinding(name=name, model=found, pool=pool, engine=chosen, profile=profile)


def planned_binding(plan: Plan) -> TrainingBinding:
    """The names of a plan, on its own chips: what another plan for the same job is searched with."""
    engine = planned_training_engine(plan.engine)
    job = job_of(plan, engine=engine)
    pool, profile = under_limit(job.pool, _profile(job.pool, engine, job.model), "power_limit_w")
    return TrainingBinding(
        name=job.name, model=job.model, pool=pool, engine=engine, profile=profile, sequences=job.load.sequences,
        precision={name: value for name in PRECISION if (value := getattr(job.recipe, name))},
    )  # fmt: skip


def planned_step(plan: Plan, engine: str = "", pool: Pool | None = None) -> TrainingStep:
    """The step of a plan, under its own engine or today's version of another one. Raises where it is not possible."""
    if engine:
        plan = replace(plan, engine=EngineChoice(name=engine, settings=plan.engine.settings))
    chosen = planned_training_engine(plan.engine)
    job = job_of(plan, pool, chosen)
    limited_pool, profile = under_limit(job.pool, _profile(job.pool, chosen, job.model), "power_limit_w")
    return step_of(replace(job, pool=limited_pool), chosen, profile, given_by(plan))


def case_of(plan: Plan, job: TrainingJob) -> TrainingCase:
    """A plan's job as techniques see it, whether it is possible or not."""
    engine = planned_training_engine(plan.engine)
    return TrainingStep(engine, job, _profile(job.pool, engine, job.model)).case


def _profile(pool: Pool, engine: TrainingEngine, model: Model) -> Profile:
    return profile_for(pool.chip, engine.traits(model).framework)
