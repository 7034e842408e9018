"""The contract of techniques in serving, and those of one deployment, one after the other.

A technique first says in words what a deployment can express already: a network in another format, degrees, settings.
What words cannot say it does where the deployment is priced: to the operators of a step, to the bytes of a rank, to the
seconds beside a step. Everything else of the deployment stays as it is, so predictions, fits, simulations and searches
all see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gnomon.cost.lines import Wait
from gnomon.engines.base import Deployment, MemoryUse
from gnomon.errors import InputError, NotApplicableError
from gnomon.graph import Graph
from gnomon.spec import Batch, Model, Pool, Strategy
from gnomon.techniques.base import Technique, Values

SERVING_CONSERVED = ("flops", "tokens", "parameters", "weight bytes", "cache bytes", "precision")
"""What a technique leaves as it is, unless it declares that it does not. Of precision only that is said: what answers
are worth then is not predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentDraft:
    """What a deployment is made of, before an engine has filled in its defaults."""

    model: Model
    pool: Pool
    strategy: Strategy
    dtype: str | None = None
    """Of the weights, where it was asked for."""
    kv_dtype: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class ServingTechnique(Technique):
    """The contract in serving. Whatever a technique does not override it leaves as it is."""

    work = "serving"
    simulated: ClassVar[bool] = True
    """Whether a load can be simulated with it: what it does to one step does not depend on the requests."""

    def reject_reason(self, draft: DeploymentDraft, values: Values) -> str:
        """Why it cannot be used here; empty where it can."""
        return ""

    def settled(self, draft: DeploymentDraft, values: Values) -> DeploymentDraft:
        """The draft with it."""
        return draft

    def own_gemm_kernels(self, values: Values) -> bool:
        """Whether it brings the kernels that read narrow weights, so that an engine's own need not know the format."""
        return False

    def graph(self, graph: Graph, deployment: Deployment, values: Values) -> Graph:
        """The operators of a step on one rank."""
        return graph

    def extra_bytes(self, deployment: Deployment, values: Values) -> float:
        """Bytes on every rank beside weights, cache and what the engine works in."""
        return 0.0

    def wait(self, deployment: Deployment, steps: Batch, cached_bytes: float, values: Values) -> Wait | None:
        """What these steps wait for beside their operators, with so many bytes of cache on a rank."""
        return None

    def facts(self, used: MemoryUse, deployment: Deployment, values: Values) -> Mapping[str, float]:
        """Figures beside whether it fits, by name; seconds by one that ends in `_s`."""
        return {}


@dataclass(frozen=True, slots=True)
class Served:
    """Techniques with their values; what `Deployment.ideas` is. Without any, everything stays as it is."""

    pairs: tuple[tuple[ServingTechnique, Values], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one, _ in self.pairs)

    def settled(self, draft: DeploymentDraft) -> DeploymentDraft:
        """The draft with all of them. Raises InputError where one does not apply."""
        for one, values in self.pairs:
            reason = one.reject_reason(draft, values)
            if reason:
                hint = "Leave it out, or change what it names."
                raise NotApplicableError(one.name, reason, where="strategy.techniques", hint=hint)
            draft = one.settled(draft, values)
        return draft

    @property
    def own_gemm_kernels(self) -> bool:
        return any(one.own_gemm_kernels(values) for one, values in self.pairs)

    def graph(self, graph: Graph, deployment: Deployment) -> Graph:
        for one, values in self.pairs:
            graph = one.graph(graph, deployment, values)
        return graph

    def extra_bytes(self, deployment: Deployment) -> float:
        return sum(one.extra_bytes(deployment, values) for one, values in self.pairs)

    def waits(self, deployment: Deployment, steps: Batch, cached_bytes: float) -> list[Wait]:
        found = (one.wait(deployment, steps, cached_bytes, values) for one, values in self.pairs)
        return [wait for wait in found if wait is not None and wait.seconds > 0]

    def facts(self, used: MemoryUse, deployment: Deployment) -> dict[str, Mapping[str, float]]:
        """Figures by technique."""
        found = {one.name: one.facts(used, deployment, values) for one, values in self.pairs}
        return {name: facts for name, facts in found.items() if facts}

    def check_simulated(self) -> None:
        for one, _ in self.pairs:
            if not one.simulated:
                raise InputError(
                    f"what a load makes of {one.name} is not simulated",
                    where="--with",
                    hint="`gnomon predict` prices one step with it, `gnomon fit` says what there is room for.",
                )
