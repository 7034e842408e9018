"""The loop that a replica's limits ask for: of one scheduler, of one with a pipeline behind it, or of data-parallel
ranks that step together."""

from __future__ import annotations

from typing import cast

from gnomon.cost.ranked import GroupStepCost
from gnomon.cost.step import StepCost
from gnomon.sim.serving.base import Policy, Progress, Recorder
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.sim.serving.curve import Curves
from gnomon.sim.serving.group import RankedStation
from gnomon.sim.serving.pipeline import StagedStation
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.sim.serving.policies.ranked import RankedPolicy
from gnomon.sim.serving.policies.staged import StagedPolicy
from gnomon.sim.serving.station import Station
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


def cache_of(requests: Requests, limits: ServingLimits) -> CacheModel:
    """The engine's KV cache, empty."""
    made: CacheModel = (limits.cache or CountedBlocks)(requests, limits)
    return made


def policy_of(requests: Requests, limits: ServingLimits) -> Policy:
    """The engine's scheduler over its cache, empty."""
    made: Policy = (limits.policy or ChunkedPolicy)(requests, limits, cache_of(requests, limits))
    return made


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
        staged = StagedPolicy(requests, limits, cache_of(requests, limits))
        return StagedStation(requests, cost, limits, staged, record, progress, curves)
    if limits.ranks == 1:
        return Station(requests, cost, limits, policy_of(requests, limits), record, progress, curves)
    group = cast(GroupStepCost, cost)
    assert group.ranks == limits.ranks, "the cost is of as many ranks"
    ranked = RankedPolicy(requests, limits, policy_of)
    return RankedStation(requests, group, limits, ranked, record, progress, curves)
