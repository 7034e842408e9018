"""A closed loop on one replica: so many clients, each of which sends its next request when the last one has
finished."""

from __future__ import annotations

from dataclasses import replace

from gnomon.cost.step import StepCost
from gnomon.sim.serving.routers import router
from gnomon.sim.serving.run import ServingRun
from gnomon.sim.serving.system import ReplicaModel, Stage, simulate_system
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


def simulate_closed(requests: Requests, clients: int, cost: StepCost, limits: ServingLimits) -> ServingRun:
    """Serve the requests in their order, never more than `clients` at once; their own arrival times are ignored.

    The first ones arrive together, each other one at the moment a client has the last token of the one before it. The
    run's requests have the arrivals that came of it: `simulate` makes the same run of them.
    """
    stage = Stage(replicas=(ReplicaModel(cost=cost, limits=limits),), router=router("round-robin"))
    system = simulate_system(requests, (stage,), clients=clients)
    ((run,),) = system.stages
    return replace(run, requests=system.requests)
