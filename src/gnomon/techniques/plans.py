"""Techniques on training plans: which of many they apply to, what they set of one, and what they add to each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gnomon.cost.lines import Steps
from gnomon.engines.training import Grid, StepTable, Traits
from gnomon.engines.training.case import TrainingCase
from gnomon.errors import InputError
from gnomon.spec import Recipe, Strategy
from gnomon.spec.workload import Floats
from gnomon.techniques.applied import Applied, rejections
from gnomon.techniques.base import Choice, Rejection, Values, overrides

TrainingTechniques = Applied[TrainingCase]
Settled = tuple[Strategy, Recipe]


def traits_with(chosen: TrainingTechniques, case: TrainingCase) -> Traits:
    """How an engine trains with techniques, which is `case.traits` without them."""
    for one, values in chosen.pairs:
        case = replace(case, traits=one.traits(case, values))
        if (rewritten := one.program(case, values)) is not None:
            case = replace(case, traits=replace(case.traits, passes=(*case.traits.passes, rewritten)))
    return case.traits


def priced_with(chosen: TrainingTechniques, case: TrainingCase, found: StepTable) -> StepTable:
    """Seconds of plans with techniques, and what those run beside the passes."""
    found = chosen.costs(found, case.at(found))
    side = tuple(group for one, values in chosen.pairs for group in one.tasks(case.at(found), values))
    return replace(found, side=(*found.side, *side)) if side else found


def lowered(chosen: TrainingTechniques) -> tuple[tuple[str, Values], ...]:
    """Those that change the operators of a step or how the engine runs them, so that a step without them has other
    figures in every part."""
    return tuple((one.name, values) for one, values in chosen.pairs if overrides(one, "program", "traits"))


def allowed(chosen: TrainingTechniques, case: TrainingCase) -> Choice:
    """Plans that techniques apply to, and that have the choices already which they set."""
    return applicable(chosen, case) & unchanged(chosen, case)


def applicable(chosen: TrainingTechniques, case: TrainingCase) -> Choice:
    """Plans that no technique rejects."""
    found = np.ones(case.plans.size, bool)
    for one, values in chosen.pairs:
        for where, why in rejections(one, case, values):
            found &= ~np.asarray(where, bool) | (not why)
        case = one.rewrite(case, values)
    return found


def unchanged(chosen: TrainingTechniques, case: TrainingCase) -> Choice:
    """Plans that have the choices already which techniques set."""
    before, found = case.plans, np.ones(case.plans.size, bool)
    for one, values in chosen.pairs:
        case = one.rewrite(case, values)
    for rows in case.plans.differs(before).values():
        found &= ~rows
    return found


def settled(chosen: TrainingTechniques, case: TrainingCase, own: Settled) -> Settled:
    """Degrees and recipe of a plan with what techniques set."""
    found = [own, *(after for _, after in _settling(chosen, case, own))]
    return found[-1]


def check_given(chosen: TrainingTechniques, case: TrainingCase, own: Settled, given: Mapping[str, Any]) -> None:
    """Reject a technique that sets a degree or a setting to another value than the user gave for it."""
    for name, (strategy, recipe) in _settling(chosen, case, own):
        for key, value in given.items():
            holder = strategy if hasattr(strategy, key) else recipe
            if getattr(holder, key) != value:
                where = f"strategy.{key}" if holder is strategy else f"engine.settings.{key}"
                message = f"{value} is given, but the technique {name} sets {getattr(holder, key)}"
                raise InputError(message, where=where, hint="Leave one of them out.")


def _settling(chosen: TrainingTechniques, case: TrainingCase, own: Settled) -> Iterator[tuple[str, Settled]]:
    """Each technique with the degrees and the recipe after it."""
    for one, values in chosen.pairs:
        before, case = case.plans, one.rewrite(case, values)
        own = _moved(own, before, case.plans)
        yield one.name, own


def _moved(own: Settled, before: Grid, after: Grid) -> Settled:
    """Degrees and recipe with those choices of a plan that differ; the others may say more than a plan's columns do."""
    strategy, recipe = own
    moved = after.strategy(0), after.recipe(0, recipe.optimizer)
    for name in after.differs(before):
        if hasattr(strategy, name):
            strategy = replace(strategy, **{name: getattr(moved[0], name)})
        else:
            recipe = replace(recipe, **{name: getattr(moved[1], name)})
    return strategy, recipe


def waits_s(chosen: TrainingTechniques, case: TrainingCase, step_s: Floats) -> Floats:
    """Seconds that techniques add to the steps of priced plans."""
    parts = [np.asarray(wait.seconds) for wait in chosen.waits(Steps(seconds=step_s), case).values()]
    return np.asarray(sum(parts, np.zeros(np.shape(step_s))))


def undivided(case: TrainingCase) -> Iterator[Rejection]:
    """Why a step's sequences, or experts, cannot be divided over data-parallel ranks, where they cannot."""
    plans, batch = case.plans, case.load.global_batch
    ranks, each = plans.dp * plans.cp, np.maximum(plans.dp * plans.micro_batch, 1)
    yield (
        ranks % np.maximum(plans.ep, 1) != 0,
        lambda row: f"experts cannot be sharded over {plans.ep[row]} of {ranks[row]} ranks",
    )
    yield (
        batch % each != 0,
        lambda row: f"{batch} sequences cannot be divided into micro-batches over {plans.dp[row]} data-parallel ranks",
    )
