"""The contract of serving techniques, and the techniques of one deployment.

A technique first rewrites what a deployment's configuration can express: a network in another format, degrees,
settings. The rest it changes where the deployment is priced: operators of a step, bytes of a rank, seconds added to a
step. Predictions, fits, simulations and searches all see it.
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
"""What a technique leaves as it is, unless it declares that it does not. The effect of a changed precision on the
quality of answers is not predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentDraft:
    """What a deployment is made of, before an engine has filled in its defaults."""

    model: Model
    pool: Pool
    strategy: Strategy
    dtype: str | None = None
    """Format of the weights, where it was given."""
    kv_dtype: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class ServingTechnique(Technique):
    """The contract of serving techniques. Whatever a technique does not override it leaves as it is."""

    work = "serving"
    simulated: ClassVar[bool] = True
    """Whether a load can be simulated with it: its effect on a step does not depend on the requests."""

    def reject_reason(self, draft: DeploymentDraft, values: Values) -> str:
        """Why it cannot be used here; empty where it can."""
        return ""

    def rewrite(self, draft: DeploymentDraft, values: Values) -> DeploymentDraft:
        """The draft with the technique applied."""
        return draft

    def brings_gemm_kernels(self, values: Values) -> bool:
        """Whether it has its own GEMM kernels for quantized weights, so that the engine need not support the format."""
        return False

    def graph(self, graph: Graph, deployment: Deployment, values: Values) -> Graph:
        """The operators of a step on one rank."""
        return graph

    def extra_bytes(self, deployment: Deployment, values: Values) -> float:
        """Bytes per rank in addition to weights, KV cache and the engine's workspace."""
        return 0.0

    def wait(self, deployment: Deployment, steps: Batch, cached_bytes: float, values: Values) -> Wait | None:
        """What these steps wait for in addition to their operators, with so many bytes of KV cache per rank."""
        return None

    def metrics(self, used: MemoryUse, deployment: Deployment, values: Values) -> Mapping[str, float]:
        """Additional metrics of a memory fit, by name; names of seconds end in `_s`."""
        return {}


@dataclass(frozen=True, slots=True)
class Served:
    """Serving techniques with their values; what `Deployment.applied` is. Without any, a deployment stays as it is."""

    pairs: tuple[tuple[ServingTechnique, Values], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def rewrite(self, draft: DeploymentDraft) -> DeploymentDraft:
        """The draft with all techniques applied. Raises InputError where one does not apply."""
        for one, values in self.pairs:
            reason = one.reject_reason(draft, values)
            if reason:
                hint = "Leave it out, or change what it names."
                raise NotApplicableError(one.name, reason, where="strategy.techniques", hint=hint)
            draft = one.rewrite(draft, values)
        return draft

    @property
    def brings_gemm_kernels(self) -> bool:
        return any(one.brings_gemm_kernels(values) for one, values in self.pairs)

    def graph(self, graph: Graph, deployment: Deployment) -> Graph:
        for one, values in self.pairs:
            graph = one.graph(graph, deployment, values)
        return graph

    def extra_bytes(self, deployment: Deployment) -> float:
        return sum(one.extra_bytes(deployment, values) for one, values in self.pairs)

    def waits(self, deployment: Deployment, steps: Batch, cached_bytes: float) -> list[Wait]:
        found = (one.wait(deployment, steps, cached_bytes, values) for one, values in self.pairs)
        return [wait for wait in found if wait is not None and wait.seconds > 0]

    def metrics(self, used: MemoryUse, deployment: Deployment) -> dict[str, Mapping[str, float]]:
        """Additional metrics of a memory fit, by technique."""
        found = {one.name: one.metrics(used, deployment, values) for one, values in self.pairs}
        return {name: metrics for name, metrics in found.items() if metrics}

    def check_simulated(self) -> None:
        for one, _ in self.pairs:
            if not one.simulated:
                raise InputError(
                    f"{one.name} cannot be simulated under load",
                    where="--with",
                    hint="`gnomon predict` prices one step with it, `gnomon fit` reports what fits in memory.",
                )
