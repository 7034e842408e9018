"""The full run of a plan: how long it takes and what it costs, and before a plan is timed how little it could."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnomon.errors import InfeasibleError
from gnomon.planning.run.bounds import fewest_spares, longest_run_s, most_goodput
from gnomon.planning.run.reliability import planned_run
from gnomon.planning.training.search import Search
from gnomon.planning.training.step import TrainingStep
from gnomon.spec.reliability import FaultTolerance
from gnomon.spec.workload import Floats
from gnomon.units import HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run must keep to."""

    deadline_s: float = math.inf
    budget_usd: float = math.inf

    @property
    def any(self) -> bool:
        return math.isfinite(self.deadline_s) or math.isfinite(self.budget_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs of several plans as columns, or lower bounds of all of them."""

    ranks: Floats
    """GPUs that train."""
    step_s: Floats
    """A step's share of the elapsed time: with failures, more than the step."""
    step_usd: Floats
    """What is paid meanwhile, for spare nodes too."""
    step_tokens: float
    tokens: float | None
    """Of the full run; None where no run is asked for."""
    longest_s: Floats | float = math.inf
    """Of a run that is looked for: no run within the limits takes longer."""

    @property
    def steps(self) -> float:
        """Of the run; one where none is asked for."""
        return 1 if self.tokens is None else math.ceil(self.tokens / self.step_tokens)

    @property
    def wall_s(self) -> Floats:
        return self.steps * self.step_s

    @property
    def cost_usd(self) -> Floats:
        return self.steps * self.step_usd

    def within(self, limits: Limits) -> Floats:
        """Whether a run keeps to the limits, as the factor 1 or infinity."""
        kept = (self.wall_s <= limits.deadline_s) & (self.cost_usd <= limits.budget_usd)
        return np.where(kept, 1.0, np.inf)

    def most_steps(self, limits: Limits) -> Floats:
        """Whole steps that the limits leave."""
        lasting = np.minimum(self.longest_s, limits.deadline_s)
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.minimum(lasting / self.step_s, limits.budget_usd / self.step_usd)
        return np.where(np.isfinite(self.step_s), np.floor(most * (1 + 1e-12)), 0.0)


def least_runs(search: Search, bounds: Floats, asked: FaultTolerance | None, limits: Limits) -> Runs:
    """Lower bounds of all plans of a search, from those of their steps; infinite where a plan does not fit."""
    ranks, load = search.grid.ranks, search.load
    if asked is None:
        return _runs(search, ranks, ranks, bounds)
    known, place = np.unique(ranks, return_inverse=True)
    least = np.full(known.size, np.inf)
    np.minimum.at(least, place, bounds)
    share, spares, longest = np.ones(known.size), np.zeros(known.size), np.full(known.size, np.inf)
    node, usd_s = search.pool.per_node, search.pool.chip.price_usd_h / HOUR_S
    for at in np.flatnonzero(np.isfinite(least)).tolist():
        count = int(known[at])
        share[at] = most_goodput(asked, count)
        if load.steps is None:
            paid = limits.budget_usd / usd_s if math.isfinite(limits.budget_usd) else np.inf
            longest[at] = longest_run_s(asked, count, node, paid, limits.deadline_s)
        else:
            spares[at] = fewest_spares(asked, count, load.steps * float(least[at]))
    found = _runs(search, ranks, ranks + spares[place] * node, bounds / share[place])
    return replace(found, longest_s=longest[place])


def run_of(search: Search, row: int, step: TrainingStep | None, asked: FaultTolerance | None) -> Runs:
    """The run of one plan; `step` is its step, which failures are counted with. Infinite where failures let it hardly
    move."""
    ranks = search.grid.ranks[row : row + 1]
    if asked is None or step is None:
        return _runs(search, ranks, ranks, np.array([search.step_s(row)]))
    try:
        run = planned_run(step, asked)
    except InfeasibleError:
        return _runs(search, ranks, ranks, np.array([np.inf]))
    return _runs(search, ranks, ranks + run.case.spares * search.pool.per_node, np.array([run.wall_s / run.steps]))


def most_steps(step: TrainingStep, asked: FaultTolerance, limits: Limits) -> int:
    """The longest run within limits that its failures leave time and money for: both grow with its steps. A run so
    short that its first checkpoint would come too late is none."""
    price, ranks = step.pool.chip.price_usd_h / HOUR_S, step.job.strategy.ranks

    def keeps(steps: int) -> bool:
        try:
            run = planned_run(step, asked, steps)
        except InfeasibleError:
            return False
        paid = ranks + run.case.spares * step.pool.per_node
        return run.wall_s <= limits.deadline_s and paid * price * run.wall_s <= limits.budget_usd

    seconds = min(limits.deadline_s, limits.budget_usd / (ranks * price) if price else math.inf)
    low, high = 0, int(seconds / step.step_s.value) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _runs(search: Search, ranks: Any, paid: Any, step_s: Floats) -> Runs:
    load = search.load
    with np.errstate(invalid="ignore"):
        usd = np.nan_to_num(paid * search.pool.chip.price_usd_h * step_s / HOUR_S, nan=np.inf, posinf=np.inf)
    return Runs(ranks=ranks, step_s=step_s, step_usd=usd, step_tokens=load.step_tokens, tokens=load.tokens)
