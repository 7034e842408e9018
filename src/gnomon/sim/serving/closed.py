"""One replica whose clients wait for answers: a closed loop, or the turns of sessions."""

from __future__ import annotations

from gnomon.cost.step import StepCost
from gnomon.sim.serving.log import RunLog
from gnomon.sim.serving.routers import router
from gnomon.sim.serving.run import ServingRun
from gnomon.sim.serving.system import ReplicaModel, ServingStage, simulate_system
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


def simulate_closed(
    requests: Requests, clients: int | None, cost: StepCost, limits: ServingLimits, log: RunLog | None = None
) -> ServingRun:
    """Serve the requests in their order, never more than `clients` at once; their own arrival times are ignored. The
    first ones arrive together, each other one at the moment a client has the last token of the one before it.

    Without `clients`, turns of a session arrive when their client has thought about the answer before them.
    The run has its requests in the order of the arrivals that came of it: `simulate` makes the same run of them.
    """
    stage = ServingStage(replicas=(ReplicaModel(cost=cost, limits=limits, log=log),), router=router("round-robin"))
    ((run,),) = simulate_system(requests, (stage,), clients=clients).stages
    return run
