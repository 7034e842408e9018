"""FasterTransformer behind the engine contract: cuBLAS in 16 bits, NCCL, kernels launched one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gnomon.cost.host import HostModel
from gnomon.cost.profile import Profile
from gnomon.engines.base import Deployment, StageWork
from gnomon.engines.declared import EngineInfo
from gnomon.engines.fastertransformer import ENGINE
from gnomon.engines.fastertransformer.kernels import NARROW, apart, with_gemv
from gnomon.engines.static import StaticEngine
from gnomon.engines.vllm import degrees
from gnomon.engines.vllm.weights import check_cuts
from gnomon.graph.lower import lower_cut, paged_cut
from gnomon.graph.support import check_priced

LAYER_S, REDUCE_S = 54e-6, 4e-6
"""What a layer takes beside its kernels, and what an all-reduce takes beside NCCL's: kernels are launched one after the
other, and streams wait for each other. `python -m tools.fastertransformer` fits both to a third of the tables of
FasterTransformer's GPT guide (5.1, A100); the others are off by 7%."""
SPREAD = 0.15
"""Of steps beside their operators, from the tables that nothing was fitted to."""


@dataclass(frozen=True)
class FasterTransformer(StaticEngine):
    """FasterTransformer 5.1 of 2022: operators as vLLM's, without CUDA graphs, custom all-reduces and paged caches."""

    INFO: ClassVar[EngineInfo] = ENGINE
    DEGREES: ClassVar[tuple[str, ...]] = ("pp",)
    FORMATS: ClassVar[tuple[str, ...]] = ("bf16", "fp16", *NARROW)
    version: str = ""
    name: str = ENGINE.name
    title: str = ENGINE.title

    def host(self, deployment: Deployment, layers: int | None = None) -> HostModel:
        count = deployment.model.layers if layers is None else layers
        each = LAYER_S + (2 * REDUCE_S if deployment.strategy.tp > 1 else 0.0)
        source = "FasterTransformer 5.1, fitted to a third of its GPT guide, tested on the rest"
        return HostModel(eager_launch_s=0.0, gap_base_s=count * each, spread=SPREAD, source=source)

    def profile(self, deployment: Deployment) -> Profile:
        return with_gemv(deployment.profile, deployment.pool.chip)

    def stages(self, deployment: Deployment) -> tuple[StageWork, ...]:
        """Weights run in whatever format they are stored in: the library has kernels for all of them on any chip."""
        model, chip = deployment.model, deployment.pool.chip
        cut = paged_cut(model, deployment.strategy, deployment.dtype, deployment.kv_dtype)
        passes, found = deployment.techniques.passes(deployment), []
        for stage in degrees.stages(model, deployment.strategy.pp):
            graph = lower_cut(stage.of(model), cut, stage.ends, passes).rewrite(lambda op: apart(op, chip))
            found.append(StageWork(layers=stage.layers, graph=graph))
        return tuple(found)

    def check(self, deployment: Deployment) -> None:
        check_priced(deployment.model, deployment.dtype)
        self.check_memory(deployment)

    def check_memory(self, deployment: Deployment) -> None:
        self.check_kind(deployment)
        degrees.check(self._filled(deployment))
        check_cuts(deployment.model, deployment.strategy)
