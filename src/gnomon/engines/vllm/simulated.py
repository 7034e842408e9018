"""Which replicas vLLM's loads are simulated on, and how its data-parallel engines get their requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.engines.base import Deployment
from gnomon.engines.simulated import check_simulated
from gnomon.engines.vllm.drafts import NONE
from gnomon.errors import InputError
from gnomon.spec import Strategy

if TYPE_CHECKING:
    from gnomon.sim.serving.balancers import LeastScore

UNRANKED = {
    "scheduling_policy": ("fcfs",),
    "enable_lora": (False,),
    "speculative_method": (NONE,),
    "kv_offloading_size": (None, 0, 0.0),
}
"""Settings that are simulated with one scheduler only, and their values that are simulated with several."""
WAITING_WEIGHT, INTERVAL_S = 4, 0.1
"""Of `DPLBAsyncMPClient.get_core_engine_for_request` (v1/engine/core_client.py): waiting requests count four times;
the coordinator publishes counts every 100 ms (`min_stats_update_interval_ms` in v1/engine/coordinator.py)."""


def check(deployment: Deployment) -> None:
    """Raise InputError for replicas whose loads are not simulated."""
    strategy = deployment.strategy
    check_simulated(deployment, pipelines=True, dense_ranks="engines of their own")
    for name, simulated in UNRANKED.items():
        if strategy.dp * strategy.pp > 1 and deployment.settings[name] not in simulated:
            raise InputError(
                f"{name} on data-parallel ranks or a pipeline is not simulated",
                where=f"setting {name}",
                hint="Leave it out, or use --tp alone.",
            )


@dataclass(frozen=True, slots=True)
class FrontEndBalancer:
    """Makes the balancer of vLLM's front end; limits that have one are equal where all else is."""

    waiting_weight: int = WAITING_WEIGHT
    interval_s: float = INTERVAL_S

    def __call__(self, ranks: int) -> LeastScore:
        from gnomon.sim.serving.balancers import LeastScore  # one step simulates nothing

        return LeastScore(ranks, self.waiting_weight, self.interval_s)


def limits(strategy: Strategy) -> dict[str, Any]:
    """What a scheduler must know of the others of its replica."""
    if strategy.pp > 1:
        return {"stages": strategy.pp}
    if strategy.dp > 1:
        return {"ranks": strategy.dp, "balancer": FrontEndBalancer()}
    return {}
