"""How the techniques of a deployment change what its engine brings, whichever engine and whichever they are.

An engine never imports a technique: it hands over its operators, its memory, its step model and its limits, and goes on
with what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gnomon.cost.lines import Steps, Wait
    from gnomon.cost.step import StepModel
    from gnomon.engines.base import Case, Deployment, MemoryUse, RankBytes
    from gnomon.graph.layers import NodePass
    from gnomon.spec import Requests, ServingLimits

RouterMaker = Callable[[int], Any]
"""What makes a router (`gnomon.sim.serving.routers.Router`) of a seed."""


class AppliedTechniques(Protocol):
    """What an engine and planning ask the techniques of a deployment."""

    def __bool__(self) -> bool:
        """Whether there are any."""

    @property
    def brings_gemm_kernels(self) -> bool:
        """Whether they bring the kernels that read narrow weights, so that the engine's own need not know them."""

    @property
    def streams_weights(self) -> bool:
        """Whether they keep weights of layers off the chip, so that the engine's own settings cannot too."""

    def passes(self, case: Deployment) -> tuple[NodePass, ...]:
        """What they rewrite of the operators of a step."""

    def memory(self, used: RankBytes, case: Deployment) -> RankBytes:
        """Bytes of one rank in each tier."""

    def kv_cache(self, used: MemoryUse, case: Deployment) -> MemoryUse:
        """What sequences hold of the cache."""

    def costs(self, found: StepModel, case: Deployment) -> StepModel:
        """What prices a step."""

    def waits(self, steps: Steps, case: Deployment) -> Mapping[str, Wait]:
        """What steps wait for in addition to their operators, by technique."""

    def limits(self, found: ServingLimits, case: Deployment) -> ServingLimits:
        """What a scheduler works within, with the policy and the cache that techniques bring."""

    def requests(self, found: Requests, case: Case) -> Requests:
        """What clients send."""

    def router(self, make: RouterMaker, case: Case) -> RouterMaker:
        """What sends requests to replicas."""

    @property
    def routes(self) -> bool:
        """Whether one of them brings a router, which may look at the replicas."""

    def metrics(self, used: Any, case: Deployment) -> Mapping[str, Mapping[str, float]]:
        """Further metrics of memory, by technique."""

    def assumed(self, case: Deployment) -> Mapping[str, str]:
        """What they assume that no input states, by technique."""

    def check_simulated(self, case: Deployment) -> None:
        """Raise InputError where a load cannot be simulated with them."""


class NoTechniques:
    """Everything stays as the engine has it."""

    brings_gemm_kernels = streams_weights = routes = False

    def __bool__(self) -> bool:
        return False

    def passes(self, case: Deployment) -> tuple[NodePass, ...]:
        return ()

    def memory(self, used: RankBytes, case: Deployment) -> RankBytes:
        return used

    def kv_cache(self, used: MemoryUse, case: Deployment) -> MemoryUse:
        return used

    def costs(self, found: StepModel, case: Deployment) -> StepModel:
        return found

    def waits(self, steps: Steps, case: Deployment) -> Mapping[str, Wait]:
        return {}

    def limits(self, found: ServingLimits, case: Deployment) -> ServingLimits:
        return found

    def requests(self, found: Requests, case: Case) -> Requests:
        return found

    def router(self, make: RouterMaker, case: Case) -> RouterMaker:
        return make

    def metrics(self, used: Any, case: Deployment) -> Mapping[str, Mapping[str, float]]:
        return {}

    def assumed(self, case: Deployment) -> Mapping[str, str]:
        return {}

    def check_simulated(self, case: Deployment) -> None:
        """Nothing stands against it."""


NO_TECHNIQUES = NoTechniques()
