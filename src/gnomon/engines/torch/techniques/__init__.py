"""Techniques of plans that the built-in runner runs, found by name: a file here that has `TECHNIQUES` declares some.

`techniques/base.py` is their contract. Optimizers are found in `gnomon.engines.torch.optimizers`, ways to recompute in
`gnomon.engines.torch.recompute`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np

from gnomon.engines.torch.techniques.base import RunnerTechnique, RunningTechnique, Together, Values
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.grid import DEGREES
from gnomon.errors import InputError
from gnomon.spec.training_job import TrainingJob

__all__ = [
    "RunnerTechnique",
    "RunningTechnique",
    "Together",
    "Values",
    "check",
    "names",
    "refuse_unknown",
    "rejections",
    "start",
    "techniques",
]
WHERE = "strategy.techniques"


@cache
def techniques() -> dict[str, RunnerTechnique]:
    """All that the runner runs, by name."""
    modules = (import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__))
    return {one.name: one for module in modules for one in getattr(module, "TECHNIQUES", ())}


def names() -> tuple[str, ...]:
    return tuple(sorted(techniques()))


def refuse_unknown(asked: tuple[str, ...]) -> None:
    """Raise InputError for a technique, as a plan writes it, that the runner does not run."""
    for text in asked:
        if text.partition(":")[0].strip() not in techniques():
            known = " or ".join(names())
            hint = f"Leave it out, or use {known}." if known else "Leave it out."
            raise InputError(f"the built-in runner does not support the technique {text}", where=WHERE, hint=hint)


def check(job: TrainingJob) -> None:
    """Raise InputError where a technique of the job does not run with the rest of it."""
    refuse_unknown(tuple(job.techniques))
    for name, values in job.techniques.items():
        techniques()[name].check(job, values)


def rejections(name: str, case: TrainingCase, values: Values) -> Iterator[tuple[Any, str]]:
    """Plans that the runner does not run with a technique, and why. Those that `check` cannot tell apart are checked
    once."""
    known, plans = techniques().get(name), case.plans
    yield known is None, f"the built-in runner does not support the technique {name}"
    if known is None:
        return
    columns = [getattr(plans, degree) > 1 for degree in DEGREES] + [plans.zero, plans.recompute, plans.schedule]
    _, first, group = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    why: dict[str, list[int]] = {}
    for place, row in enumerate(first.tolist()):
        strategy, recipe = plans.strategy(row), plans.recipe(row, case.optimizer)
        job = TrainingJob(
            model=case.model, pool=case.pool, strategy=strategy, recipe=recipe, load=case.load, dtype=case.dtype
        )
        try:
            known.check(job, values)
        except InputError as error:
            why.setdefault(error.message, []).append(place)
    for told, places in why.items():
        yield np.isin(group.ravel(), places), told


def start(job: TrainingJob, place: Any) -> Together:
    """The techniques of a job on this rank."""
    return Together({name: techniques()[name].start(job, values, place) for name, values in job.techniques.items()})
