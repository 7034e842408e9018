"""The loop that a replica's limits ask for: of one scheduler, of one with a pipeline behind it, or of data-parallel
ranks that step together."""

from __future__ import annotations

from typing import cast

from gnomon.cost.ranked import GroupStepCost
from gnomon.cost.step import StepCost
from gnomon.sim.serving.base import Progress, Recorder
from gnomon.sim.serving.curve import Curves
from gnomon.sim.serving.group import RankedStation
from gnomon.sim.serving.pipeline import StagedStation
from gnomon.sim.serving.station import Station
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


def station_of(
    requests: Requests,
    cost: StepCost,
    limits: ServingLimits,
    record: Recorder | None = None,
    progress: Progress | None = None,
    curves: Curves | None = None,
) -> Station:
    """One replica, with these requests known from the start."""
    if limits.stages > 1:
        return StagedStation(requests, cost, limits, record, progress, curves)
    if limits.ranks == 1:
        return Station(requests, cost, limits, record, progress, curves)
    group = cast(GroupStepCost, cost)
    assert group.ranks == limits.ranks, "the cost is of as many ranks"
    return RankedStation(requests, group, limits, record, progress, curves)
