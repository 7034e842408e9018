"""Names of a training plan or command made into what they name: model, chips, recipe."""

from __future__ import annotations

from pathlib import Path

from gnomon.errors import InputError
from gnomon.load.hf import config_of
from gnomon.load.hf import model as load_model
from gnomon.load.plan import plan_pool
from gnomon.load.recipe import recipe_of
from gnomon.spec import Model, Plan, Pool, TrainingLoad
from gnomon.spec.training_job import TrainingJob


def named_model(model: str | Path | Model) -> tuple[str, Model]:
    """A model and what it is called in an answer."""
    return (model.name, model) if isinstance(model, Model) else (str(model), load_model(model))


def job_of(plan: Plan, pool: Pool | None = None) -> TrainingJob:
    """The job that a plan names, on its own chips or on `pool`. Nothing of it is checked but that it trains."""
    if not isinstance(plan.load, TrainingLoad):
        raise InputError("the plan is not for training", where="load", hint="Give it seq and global_batch.")
    if plan.replicas != 1:
        hint = "Say how many copies learn together as strategy.dp."
        raise InputError(f"{plan.replicas} is not 1, as training needs it", where="replicas", hint=hint)
    return TrainingJob(
        name=plan.model,
        model=load_model(plan.model),
        pool=pool or plan_pool(plan),
        strategy=plan.strategy,
        recipe=recipe_of(plan.engine.settings),
        load=plan.load,
        dtype=plan.dtype,
        engine=plan.engine.label,
        config=config_of(plan.model),
    )
