"""The longest sequences that a cluster trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.errors import InputError
from gnomon.planning.training.objectives.base import BestPlan, PlanQuery, RankedPlans, Site
from gnomon.planning.training.objectives.fastest import Fastest
from gnomon.planning.training.search import Search
from gnomon.spec import TrainingLoad
from gnomon.spec.questions.objectives import CONTEXT


class LongestContext(Fastest):
    """In multiples of the sequence that is asked for, as many of them in a step, no longer than the model's own. A plan
    that divides a sequence divides its multiples, and needs more memory the longer they are: the most that fit are
    found by halving. Where the run has limits, lengths are tried from there downwards, since a step may take less per
    token the longer its sequences are. The plan is the fastest for sequences so long."""

    name = CONTEXT
    unit = "tokens of a sequence"
    by_step = True

    def choose(self, task: PlanQuery) -> BestPlan | None:
        (site,) = task.sites
        unit, model = task.load.seq, site.bound.model
        own = max(1, (model.learned_positions or model.max_context) // unit)
        tried: dict[int, str] = {own + 1: "longer than the model's own"}
        most = self._most_that_fit(task, site, own, tried)
        for times in range(most, 0, -1):
            found = self._found(task, site, times, tried)
            if found is not None:
                chosen, searches = found
                beyond = ({"seq": (times + 1) * unit, "why": tried[times + 1]},)
                return _outcome(chosen, site, searches, times * unit, beyond)
        return None

    def _most_that_fit(self, task: PlanQuery, site: Site, own: int, tried: dict[int, str]) -> int:
        """The most times that some plan has the memory for; 0 where none has it for once."""

        def fits(times: int) -> bool:
            found = any(one.fits.any() for one in _searches(task, site, times, lean=True))
            if not found:
                tried[times] = "no plan fits in memory"
            return found

        low, high = 0, 1
        while high <= own and fits(high):
            low, high = high, 2 * high
        high = min(high, own + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _found(
        self, task: PlanQuery, site: Site, times: int, tried: dict[int, str]
    ) -> tuple[RankedPlans, list[Search]] | None:  # fmt: skip
        searches = _searches(task, site, times)
        chosen = self.best(task, site, searches)
        if chosen is None:
            tried[times] = "no plan keeps the limits"
            return None
        return chosen, searches

    def value(self, runs: Any, limits: Any) -> float:
        raise AssertionError("of the sequences, not of a run")


def _searches(task: PlanQuery, site: Site, times: int, lean: bool = False) -> list[Search]:
    """None where the engine has no plan at all for sequences so long."""
    load: TrainingLoad = replace(task.load, seq=times * task.load.seq)
    try:
        return task.searches(site, load, lean)
    except InputError:
        if times == 1:
            raise
        return []


def _outcome(
    chosen: RankedPlans, site: Site, searches: list[Search], length: int, beyond: tuple[Mapping[str, Any], ...]
) -> BestPlan:  # fmt: skip
    return BestPlan(
        chosen=chosen, site=site, searches=tuple(searches), timed=chosen.timed, value=float(length), tried=beyond
    )


OBJECTIVE = LongestContext()
