"""How tokens reach experts: which settings of a recipe matter, and which cannot be."""

from __future__ import annotations

from gnomon.errors import InputError
from gnomon.sim.training import usual_schedule
from gnomon.spec import Model, Recipe, Strategy
from gnomon.spec.training import ONCE, ONCE_NARROW

_EXCHANGED = ("dispatch", "imbalance", "ep_overlap")
_COUNTED = ("capacity_factor", "pad_to_capacity")
CAPACITIES = 0.001, 1000.0
"""The smallest and the largest share of tokens that experts may take: a column of plans counts it in millionths."""


def idle_dispatch(strategy: Strategy, model: Model) -> dict[str, str]:
    """Settings without effect, and why."""
    if not model.is_moe:
        return dict.fromkeys((*_EXCHANGED, *_COUNTED), "the model has no experts")
    return {} if strategy.ep > 1 else dict.fromkeys(_EXCHANGED, "one expert-parallel rank has all experts")


def check_dispatch(model: Model, strategy: Strategy, recipe: Recipe) -> None:
    """Raise InputError for settings that cannot be. Places are the fields of a plan."""
    if recipe.capacity_factor < 0 or recipe.imbalance < 1:
        name = "capacity_factor" if recipe.capacity_factor < 0 else "imbalance"
        least = {"capacity_factor": "0 drops none", "imbalance": "1 is even"}[name]
        raise InputError(f"{getattr(recipe, name):g} is too small", where=f"engine.settings.{name}", hint=f"{least}.")
    if recipe.capacity_factor and not CAPACITIES[0] <= recipe.capacity_factor <= CAPACITIES[1]:
        message = f"{recipe.capacity_factor:g} is not between {CAPACITIES[0]:g} and {CAPACITIES[1]:,g}"
        raise InputError(message, where="engine.settings.capacity_factor", hint="0 drops none.")
    if not model.is_moe:
        return
    if recipe.pad_to_capacity and not recipe.capacity_factor:
        message = "experts that drop no tokens have no capacity to pad to"
        raise InputError(message, where="engine.settings.pad_to_capacity", hint="Set capacity_factor, or leave it out.")
    if strategy.ep > 1:
        _check_exchanged(strategy, recipe)


def _check_exchanged(strategy: Strategy, recipe: Recipe) -> None:
    if recipe.imbalance > strategy.ep:
        message = f"{recipe.imbalance:g} times the mean is more than all tokens on {strategy.ep} ranks"
        raise InputError(message, where="engine.settings.imbalance", hint=f"Use {strategy.ep} or less.")
    if recipe.dispatch in (ONCE, ONCE_NARROW) and (recipe.expert_tp or strategy.tp) > 1:
        message = f"{recipe.dispatch} sends tokens to unsharded experts, and each is cut over tensor-parallel ranks"
        raise InputError(message, where="engine.settings.dispatch", hint="Set expert_tp to 1, or use alltoall.")
    if not recipe.ep_overlap:
        return
    where = "engine.settings.ep_overlap"
    if strategy.pp > 1 and recipe.schedule != usual_schedule(2).name:
        message = f"passes of two micro-batches meet in interleaved pipelines, and the schedule is {recipe.schedule}"
        raise InputError(message, where=where, hint="Use a vp of 2 or more, or a pp of 1.")
    if recipe.recompute.startswith("full"):
        message = "the backward pass would recompute what is exchanged with experts beside it"
        raise InputError(message, where=where, hint="Use the recompute none or selective, or leave it out.")
