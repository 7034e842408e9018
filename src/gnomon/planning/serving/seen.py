"""The times of requests that a plan is judged by, and how sure its goals are met by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.search.arrivals import Routed
from gnomon.search.judge import clearance, steady_part
from gnomon.search.overall import LEAST_GROUPS, KindTimes, overall_clearance
from gnomon.sim.serving import ServingRun
from gnomon.spec import Goal
from gnomon.spec.workload import METRICS, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Requests in order of arrival."""

    times_s: Mapping[str, Floats]
    """By metric."""
    sample: bool
    """Whether other draws would have given other times."""
    group: Ints | None
    """See `KindTimes`."""

    @classmethod
    def of(cls, runs: Sequence[ServingRun], routed: Routed | None) -> Seen:
        """Of runs of what was routed."""
        sample = routed is not None and routed.sample
        group = _groups(runs, routed) if routed is not None and routed.draws else None
        return cls(times_s=steady_times(runs), sample=sample, group=group)

    def clearance(self, goal: Goal) -> float:
        """Standard errors by which a goal is met."""
        if self.group is None:
            return clearance(self.times_s[goal.metric], goal)
        return overall_clearance([self.kind(goal.metric)], goal)

    def kind(self, metric: str, share: float = 1.0) -> KindTimes:
        """The times of a metric, of a kind of replica that so large a part of all requests is of."""
        return KindTimes(values_s=self.times_s[metric], share=share, sample=self.sample, group=self.group)


def steady_times(runs: Sequence[ServingRun]) -> dict[str, Floats]:
    """Times of the requests that runs are judged by, by metric, in order of arrival."""
    parts, order = _steady(runs)
    times = {metric: [getattr(run, f"{metric}_s")[part] for run, part in parts] for metric in METRICS}
    return {metric: np.concatenate(values)[order] for metric, values in times.items()}


def _groups(runs: Sequence[ServingRun], routed: Routed) -> Ints | None:
    groups = routed.draws if routed.draws > 1 else len(routed.shares)
    if groups < LEAST_GROUPS:
        return None
    parts, order = _steady(runs)
    sizes = [part.stop - part.start for _, part in parts]
    found: Ints = np.repeat(np.arange(len(runs)) * groups // len(runs), sizes)[order]
    return found


def _steady(runs: Sequence[ServingRun]) -> tuple[list[tuple[ServingRun, slice]], Ints]:
    parts = [(run, steady_part(run.requests.arrival_s, run.finish_s)) for run in runs]
    order = np.argsort(np.concatenate([run.requests.arrival_s[part] for run, part in parts]), kind="stable")
    return parts, order
