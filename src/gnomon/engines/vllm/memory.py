"""What vLLM leaves for the cache on one rank, and how many sequences it holds."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.engines.base import Deployment, MemoryUse, RankBytes
from gnomon.engines.tiers import with_tiers
from gnomon.engines.vllm import lora, reserve
from gnomon.engines.vllm.cache import CacheLayout, layout
from gnomon.engines.vllm.degrees import shared_cache
from gnomon.engines.vllm.redundant import redundant_bytes
from gnomon.engines.vllm.releases import FIRST, Release
from gnomon.engines.vllm.weight_offload import device_bytes, host_bytes
from gnomon.engines.vllm.weights import StageWeights, stages, weight_bytes
from gnomon.graph.dtypes import width

NULL_BLOCKS = 1
"""vLLM keeps the first block for itself."""
UNLIMITED = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """One rank of a pipeline stage."""

    held: RankBytes
    kv: float
    blocks: int


def memory(deployment: Deployment, release: Release = FIRST) -> MemoryUse:
    """Parts of one rank of the fullest stage. The cache gets what the utilisation share leaves; below zero the model
    does not fit. All stages work with as many blocks as the fullest has."""
    model, strategy, shared = deployment.model, deployment.strategy, shared_cache(deployment)
    usable = reserve.visible_bytes(deployment.pool.chip) * deployment.settings["gpu_memory_utilization"]
    plan = layout(model, deployment.kv_dtype, strategy.tp, deployment.settings["block_size"])
    ranks = [_rank(deployment, usable, plan, stage, release) for stage in stages(model, strategy.pp)]
    fullest = min(ranks, key=lambda rank: (rank.blocks, rank.kv))

    def sequence_blocks(tokens: int, new: int) -> int:
        return plan.sequence_blocks(tokens, new, shared)

    plain = len(plan.groups) == 1 and plan.groups[0].keeps.kind == "full" and shared == 1
    held = fullest.held
    use = MemoryUse(
        total_bytes=deployment.pool.chip.memory_bytes,
        usable_bytes=usable,
        parts={
            "weights": held.weights, "activations": held.activations, "runtime": held.runtime,
            "kv": max(fullest.kv, 0.0),
        },
        kv_blocks=fullest.blocks,
        kv_bytes_per_token=_per_token(deployment),
        block_tokens=plan.block_tokens,
        block_bytes=float(plan.block_bytes()),
        slack_bytes=reserve.slack_bytes(model, deployment.pool.chip, strategy, release, deployment.settings),
        context=int(deployment.settings["max_model_len"]),
        step_tokens=int(deployment.settings["max_num_batched_tokens"]),
        host_bytes=host_bytes(deployment),
        sequence_blocks=None if plain else sequence_blocks,
    )  # fmt: skip
    return with_tiers(use, held, deployment)


def _per_token(deployment: Deployment) -> float:
    """Of layers whose cache grows with the sequence, all together."""
    whole = deployment.model.kv_bytes_per_token(width(deployment.kv_dtype), deployment.strategy.tp)
    return whole / shared_cache(deployment)


def _rank(deployment: Deployment, usable: float, plan: CacheLayout, stage: StageWeights, release: Release) -> _Rank:
    model, strategy, settings = deployment.model, deployment.strategy, deployment.settings
    weights = weight_bytes(model, strategy, stage, deployment.pool.chip.architecture)
    weights += redundant_bytes(deployment, stage)
    weights += lora.slot_bytes(deployment, stage)
    weights -= device_bytes(deployment, stage)
    activations = reserve.activation_bytes(model, settings, strategy, stage, release)
    runtime = reserve.runtime_bytes(model, settings, strategy, deployment.pool.chip, release)
    held = RankBytes(weights=weights, activations=activations, runtime=runtime)
    held = deployment.techniques.memory(held, deployment)
    kv = usable - held.weights - held.activations - held.runtime
    page = plan.block_bytes(stage.numbers)
    # Where nothing is kept, the rank limits nothing as long as its weights fit.
    blocks = int(kv // page if page else float(UNLIMITED)) - NULL_BLOCKS
    return _Rank(held=held, kv=kv, blocks=blocks if kv > 0 else min(blocks, 0))
