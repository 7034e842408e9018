"""The largest model that a cluster trains, within the limits of its run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gnomon.errors import InputError
from gnomon.planning.training.objectives.base import BestPlan, PlanQuery, Site
from gnomon.planning.training.objectives.fastest import Fastest
from gnomon.planning.training.scaled import family
from gnomon.planning.training.step import usable_bytes
from gnomon.spec.questions.objectives import LARGEST

SHOWN = 3
"""Larger models that are named, the next larger ones."""


class LargestModel(Fastest):
    """Of a list, or of one model scaled. Models are tried from the largest on, each with all its plans, since heads and
    layers of a smaller one may be harder to divide. The plan is the fastest for the largest that has one."""

    name = LARGEST
    unit = "parameters"
    by_step = True

    def choose(self, task: PlanQuery) -> BestPlan | None:
        tried: list[dict[str, Any]] = []
        for site in _largest_first(task):
            model = site.bound.model
            try:
                searches = task.searches(site) if _may_fit(task, site) else []
            except InputError as error:
                if len(task.sites) == 1 and model is task.sites[0].bound.model:
                    raise
                tried.append({"model": site.bound.name, "why": error.message})
                continue
            chosen = self.best(task, site, searches)
            if chosen is not None:
                return BestPlan(
                    chosen=chosen, site=site, searches=tuple(searches), timed=chosen.timed,
                    value=float(model.parameters), tried=tuple(tried[-SHOWN:]),
                )  # fmt: skip
            fits = any(one.fits.any() for one in searches)
            tried.append(
                {"model": site.bound.name, "why": f"no plan {'keeps the limits' if fits else 'fits in memory'}"}
            )
        return None

    def value(self, runs: Any, limits: Any) -> float:
        raise AssertionError("of the model, not of a run")


def _may_fit(task: PlanQuery, site: Site) -> bool:
    """Whether a plan that takes one sequence at a time fits: else none does."""
    return any(one.fits.any() for one in task.searches(site, lean=True))


def _largest_first(task: PlanQuery) -> Iterator[Site]:
    if len(task.sites) > 1:
        yield from sorted(task.sites, key=lambda one: -one.bound.model.parameters)
        return
    (site,) = task.sites
    bound = site.bound
    for model in family(bound.model, _most_parameters(task, site)):
        named = bound.name if model is bound.model else model.name
        yield replace(site, bound=replace(bound, model=model, name=named))


def _most_parameters(task: PlanQuery, site: Site) -> float:
    """That the cluster has room for, were nothing held but weights and optimizer states, each of them once; with
    techniques, which may keep states on hosts, weights of a byte alone."""
    bound = site.bound
    traits = bound.engine.traits(bound.model, task.optimizer, task.dtype or bound.model.dtype)
    states = traits.optimizers[task.optimizer]
    weights = min(states.weight_bytes, states.sharded_weight_bytes)
    each = 1.0 if task.techniques else max(states.state_bytes + weights, 1.0)
    return math.floor(bound.pool.count * usable_bytes(bound.pool, traits) / each)


OBJECTIVE = LargestModel()
