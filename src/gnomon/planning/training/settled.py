"""A training plan with what its techniques set, and refused where they would set what somebody gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines import TrainingEngine
from gnomon.load import model as load_model
from gnomon.load.recipe import recipe_of, recipe_to_settings
from gnomon.planning.training.step import machine_for
from gnomon.spec import Plan, Pool, TrainingLoad
from gnomon.techniques import Applied, TrainingCase

SET_BY_TECHNIQUES = ("pp", "vp", "cp", "dp", "schedule", "recompute", "cp_comm")
"""Degrees and settings that techniques set where nobody gives them."""


def settled(
    plan: Plan, pool: Pool, engine: TrainingEngine, ideas: Applied, given: Mapping[str, Any] | None = None
) -> Plan:
    """A plan with the degrees and the recipe that its techniques ask for, once they are known to apply to it.

    Techniques set nothing that was given: `given`, or else what the plan itself says.
    """
    model, recipe, load = load_model(plan.model), recipe_of(plan.engine.settings, "engine.settings"), plan.load
    if not isinstance(load, TrainingLoad):  # no job, as whoever makes one of it will say
        return plan
    traits = engine.traits(model)
    machine = machine_for(pool, traits)
    ideas.check(
        TrainingCase(model=model, pool=pool, load=load, machine=machine, traits=traits, optimizer=recipe.optimizer),
        plan.strategy,
        recipe,
    )
    ideas.check_given(plan.strategy, recipe, _given(plan) if given is None else given)
    strategy, recipe = ideas.settled(plan.strategy, recipe)
    return replace(plan, strategy=strategy, engine=replace(plan.engine, settings=recipe_to_settings(recipe)))


def _given(plan: Plan) -> dict[str, Any]:
    """What a plan says of what techniques set: its settings, and degrees that its file names or that are above 1."""
    degrees = {name: getattr(plan.strategy, name) for name in SET_BY_TECHNIQUES if hasattr(plan.strategy, name)}
    found = {name: degree for name, degree in degrees.items() if name in plan.given or degree > 1}
    settings = plan.engine.settings
    return found | {name: settings[name] for name in SET_BY_TECHNIQUES if settings.get(name) is not None}
