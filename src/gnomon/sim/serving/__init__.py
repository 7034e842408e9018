"""Serving on one engine replica: requests, step costs and limits in, a timeline out.

run = simulate(requests, cost, limits)
run.statistics("ttft")["p90"]
"""

from __future__ import annotations

from gnomon.cost.step import StepCost
from gnomon.sim.serving.base import Policy, Progress, Recorder, StepRecord
from gnomon.sim.serving.check import check
from gnomon.sim.serving.curve import Curves
from gnomon.sim.serving.log import RunLog
from gnomon.sim.serving.replica import station_of
from gnomon.sim.serving.run import ServingRun, StepTotals
from gnomon.sim.serving.saturation import saturation_rps
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

__all__ = [
    "Curves",
    "Policy",
    "Recorder",
    "RunLog",
    "ServingRun",
    "StepRecord",
    "StepTotals",
    "saturation_rps",
    "simulate",
]


def simulate(
    requests: Requests,
    cost: StepCost,
    limits: ServingLimits,
    *,
    record: Recorder | None = None,
    progress: Progress | None = None,
    curves: Curves | None = None,
    log: RunLog | None = None,
) -> ServingRun:
    """Serve the requests on one replica; the run has the times of each request as its client sees them.

    Raises InputError, before anything runs, for a request the replica could never serve. `record`
    collects every step (slower: without it, runs of equal steps are summed in closed form);
    `progress` is called periodically with the number of finished requests. `curves` caches decode
    curves for further runs on the same cost. `log` keeps a row for each span of steps that is made at once.
    """
    check(requests, limits)
    replica = station_of(requests, cost, limits, record, progress, curves)
    replica.watch(log)
    replica.run()
    return replica.result(requests)
