"""Optimizers of the built-in runner, found by name: a file here that has `OPTIMIZERS` declares some.

`optimizers/base.py` is their contract.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gnomon.engines.torch.optimizers.base import LEARNING_RATE, UpdateRule
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Recipe, Strategy
from gnomon.spec.training import OPTIMIZERS

__all__ = ["LEARNING_RATE", "UpdateRule", "check", "names", "optimizers"]
WHERE = "engine.settings.optimizer"


@cache
def optimizers() -> dict[str, UpdateRule]:
    """All that the runner has, by name."""
    modules = (import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__))
    return {one.name: one for module in modules for one in getattr(module, "OPTIMIZERS", ())}


def names() -> tuple[str, ...]:
    """In the order in which plans list them."""
    return tuple(name for name in OPTIMIZERS if name in optimizers())


def check(strategy: Strategy, recipe: Recipe, dtype: str) -> None:
    """Raise InputError where the runner does not have the optimizer, or not for such a plan."""
    name = recipe.optimizer
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS, where=WHERE)
    if name not in optimizers():
        hint = f"Use {' or '.join(names())}, or the engine megatron."
        raise InputError(f"the built-in runner does not support {name}", where=WHERE, hint=hint)
    rule = optimizers()[name]
    if dtype not in rule.dtypes:
        hint = "Use adamw, whose states are fp32."
        raise InputError(f"{name} does not support {dtype} weights", where=WHERE, hint=hint)
    if strategy.dp > 1 and recipe.zero not in rule.zero:
        message = f"the built-in runner does not shard {name} by ZeRO {recipe.zero}"
        raise InputError(message, where="engine.settings.zero", hint=f"Use {' or '.join(map(str, rule.zero))}.")
    rule.check(strategy, recipe)
