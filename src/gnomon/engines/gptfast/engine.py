"""gpt-fast behind the engine contract: compiled decode steps, NCCL, keys and values repeated for every query head.

Nothing is fitted. What differs from vLLM follows from its code: `torch.compile(mode="reduce-overhead")` captures a
decode step as one CUDA graph, all-reduces are NCCL's, and attention runs over the cache with keys and values repeated
(`repeat_interleave`) for the query heads that share them. Tested on the tokens per second of its README (Llama-2-7B and
70B on A100s of 330 W; those on several GPUs have an all-reduce of their own, `ENABLE_INTRA_NODE_COMM`) and of
Ladder-Residual's repository (70B on H100s): `python -m tools.gptfast`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from gnomon.cost.host import HostModel
from gnomon.engines.base import Deployment, StageWork
from gnomon.engines.declared import EngineInfo
from gnomon.engines.gptfast import ENGINE
from gnomon.engines.static import StaticEngine
from gnomon.graph.ops import Attention, Op

SPREAD = 0.15
"""Of a step beside its operators: an estimate, about the errors on both tables."""


@dataclass(frozen=True)
class GptFast(StaticEngine):
    """gpt-fast of 2024: operators as vLLM's but for attention."""

    INFO: ClassVar[EngineInfo] = ENGINE
    version: str = ""
    name: str = ENGINE.name
    title: str = ENGINE.title

    def stages(self, deployment: Deployment) -> tuple[StageWork, ...]:
        found = super().stages(deployment)
        return tuple(replace(stage, graph=stage.graph.rewrite(repeated)) for stage in found)

    def host(self, deployment: Deployment, layers: int | None = None) -> HostModel:
        return HostModel(eager_launch_s=0.0, spread=SPREAD, source="gpt-fast 2024, nothing fitted")


def repeated(op: Op) -> tuple[Op, ...]:
    """Decode attention over keys and values that every query head has for itself."""
    return (replace(op, kv_heads=op.heads),) if isinstance(op, Attention) and op.phase == "decode" else (op,)
