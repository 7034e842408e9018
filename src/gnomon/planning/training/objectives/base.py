"""What an objective of a training plan is, and the search that all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnomon.planning.training.binding import TrainingBinding
from gnomon.planning.training.checks import check_chips
from gnomon.planning.training.runs import Limits, Runs, least_runs, run_of
from gnomon.planning.training.search import Search, label, search_of, step_of_row, technique_sets
from gnomon.search.quickest import Quickest, quickest
from gnomon.spec import TrainingLoad
from gnomon.spec.reliability import FaultTolerance
from gnomon.spec.workload import Floats
from gnomon.techniques import asked as technique_names

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A model on a cluster that may be chosen, with the failures to be expected there."""

    bound: TrainingBinding
    failures: FaultTolerance | None = None


class Scored(NamedTuple):
    """A plan of a search with its score."""

    value: float
    search: Search
    row: int

    @property
    def label(self) -> str:
        return label(self.search.grid, self.row, self.search.techniques)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlans:
    """The best plan of the searches of a site, and the runner-up, of whichever search."""

    best: Scored
    second: Scored | None
    bound: float
    """No plan that was not timed scores less."""
    timed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BestPlan:
    """What an objective found."""

    chosen: RankedPlans
    site: Site
    searches: tuple[Search, ...]
    """All that was searched."""
    timed: int
    value: float
    """Of the objective, in its own unit."""
    tried: tuple[Mapping[str, Any], ...] = ()
    """Clusters, lengths or models that were compared: which, and what came of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuery:
    """A question with its names resolved."""

    sites: tuple[Site, ...]
    load: TrainingLoad
    limits: Limits
    optimizer: str
    dtype: str | None
    techniques: tuple[str, ...]
    progress: Progress | None = None
    further: Mapping[str, Any] = field(default_factory=dict)
    """What single objectives need beside that."""

    def searches(self, site: Site, load: TrainingLoad | None = None, lean: bool = False) -> list[Search]:
        """All plans of a site: without further techniques, and where `auto` asks for it with each."""
        check_chips(site.bound.pool.count)
        bound = site.bound
        plain = search_of(bound, bound.load(load or self.load), self.optimizer, self.dtype, lean, every=False)
        sets = technique_sets(technique_names(self.techniques))
        return [replace(plain, techniques=words).narrowed for words in sets]


class TrainingObjective(ABC):
    """Which of two plans is the better one. `score` says so of whole columns, so that bounds of runs give bounds of
    scores."""

    name: ClassVar[str]
    unit: ClassVar[str] = "s"
    """Of `value`: seconds of the full run where there is one."""
    by_step: ClassVar[bool] = False
    """Whether the score of a plan is its step time where no failures are asked for."""
    sets_tokens: ClassVar[bool] = False
    """Whether the value is the tokens of the run."""
    equal: ClassVar[str] = "equal in time"
    pruned: ClassVar[str] = "cannot be faster"
    timed: ClassVar[str] = "timed and slower"

    def behind(self, more: float) -> str:
        """How far the runner-up is behind, whose score is by this share above the best."""
        return f"{more:.2%} slower"

    @abstractmethod
    def score(self, runs: Runs, limits: Limits) -> Floats:
        """Less is better; never falls as a run takes longer or costs more. Infinite where a limit is not kept."""

    def value(self, runs: Runs, limits: Limits) -> float:
        """What the objective is about, of one run: in GPUs, dollars, tokens or seconds."""
        return float(self.score(runs, limits)[0])

    def rank(self, runs: Runs, limits: Limits) -> tuple[float, ...]:
        """What the best plans of several clusters are compared by, the first figure first."""
        return (float(self.score(runs, limits)[0]),)

    def choose(self, task: PlanQuery) -> BestPlan | None:
        """The best plan of all clusters, the first of equals; None where none keeps the limits."""
        best: tuple[tuple[float, ...], RankedPlans, Site, float] | None = None
        searched: list[Search] = []
        tried, timed = [], 0
        for site in task.sites:
            searches = task.searches(site)
            searched += searches
            chosen = self.best(task, site, searches)
            if chosen is None:
                tried.append(_without(site, searches))
                continue
            timed += chosen.timed
            run = self.run(chosen.best.search, chosen.best.row, site, task.limits)
            rank, value = self.rank(run, task.limits), self.value(run, task.limits)
            tried.append({**_named(site), "value": value, "label": chosen.best.label})
            if best is None or rank < best[0]:
                best = rank, chosen, site, value
        if best is None:
            return None
        _, chosen, site, value = best
        several = tuple(tried) if len(task.sites) > 1 else ()
        return BestPlan(chosen=chosen, site=site, searches=tuple(searched), timed=timed, value=value, tried=several)

    def levels(self, searches: Sequence[Search], bounds: Sequence[Floats]) -> Iterator[list[NDArray[np.bool_]]]:
        """Plans of all searches in groups, of which the first that has a plan within the limits is chosen from."""
        yield [np.isfinite(one) for one in bounds]

    def run(self, search: Search, row: int, site: Site, limits: Limits) -> Runs:
        """One plan's run, as it is scored."""
        step = step_of_row(search, row) if site.failures is not None else None
        return run_of(search, row, step, site.failures)

    def best(self, task: PlanQuery, site: Site, searches: Sequence[Search]) -> RankedPlans | None:
        """The best plan of a site; None where none keeps the limits."""
        fitting = [one for one in searches if one.fits.any()]
        bounds = [self._bounds(task, site, one, one.loose_bounds_s) for one in fitting]
        timed = 0
        for masks in self.levels(fitting, bounds):
            open_ = [np.where(mask, bound, np.inf) for mask, bound in zip(masks, bounds, strict=True)]
            chosen = self._best_of(task, site, fitting, open_)
            timed += chosen.timed if chosen else 0
            if chosen is not None and np.isfinite(chosen.best.value):
                return replace(chosen, timed=timed)
        return None

    def _bounds(self, task: PlanQuery, site: Site, search: Search, bounds_s: Floats) -> Floats:
        return np.asarray(self.score(least_runs(search, bounds_s, site.failures, task.limits), task.limits))

    def _best_of(
        self, task: PlanQuery, site: Site, searches: Sequence[Search], bounds: Sequence[Floats]
    ) -> RankedPlans | None:  # fmt: skip
        """Of several searches one after the other. What two plans of those before are no worse than is not timed, and
        of equal ones the first is chosen."""
        ranked: list[Scored] = []
        timed, bound = 0, np.inf
        for search, own in zip(searches, bounds, strict=True):
            limit = ranked[1].value if len(ranked) > 1 else np.inf
            if search.has_side and (own < limit).any():
                closer = self._bounds(task, site, search, search.closer_bounds_s(own < limit))
                own = np.where(own < limit, closer, own)
            if not own.size or not own.min() < limit:
                bound = min(bound, float(own.min(initial=np.inf)))
                continue
            found = self._quickest(task, site, search, own, limit)
            timed, bound = timed + found.evaluated, min(bound, found.bound)
            ranked.append(Scored(found.value, search, found.best))
            if found.second is not None and found.second_value is not None:
                ranked.append(Scored(found.second_value, search, found.second))
            ranked = sorted(ranked, key=lambda one: one.value)[:2]
        if not ranked:
            return None
        return RankedPlans(best=ranked[0], second=ranked[1] if len(ranked) > 1 else None, bound=bound, timed=timed)

    def _quickest(self, task: PlanQuery, site: Site, search: Search, bounds: Floats, limit: float) -> Quickest:
        def evaluate(row: int) -> float:
            return float(self.score(self.run(search, row, site, task.limits), task.limits)[0])

        return quickest(bounds, evaluate, task.progress, needs=search.preference, limit=limit)


def _named(site: Site) -> dict[str, Any]:
    return {"cluster": site.bound.pool.words}


def _without(site: Site, searches: Sequence[Search]) -> dict[str, Any]:
    """A cluster with no plan that keeps the limits."""
    fits = any(one.fits.any() for one in searches)
    return {**_named(site), "why": "no plan keeps the limits" if fits else "no plan fits in memory"}
