"""What TensorRT-LLM 1.2 leaves for the cache on one rank: a share of what a trial step has not used.

It loads the weights, runs prompts of `max_num_tokens` tokens, takes the most that was in use meanwhile, inside PyTorch
and outside, and gives the cache `free_gpu_memory_fraction` of the rest (`KvCacheCreator.configure_kv_cache_capacity`,
`_cal_max_memory`). All layers keep all tokens, also those with a window, unless `max_attention_window` is set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnomon.engines.base import Deployment, MemoryUse, RankBytes
from gnomon.engines.tiers import with_tiers
from gnomon.engines.trtllm import degrees
from gnomon.engines.vllm.reserve import visible_bytes
from gnomon.engines.vllm.weights import StageWeights, weight_bytes
from gnomon.engines.working import working_bytes
from gnomon.graph.dtypes import width
from gnomon.graph.stages import Stage
from gnomon.spec import Block, Model, MoeFfn, Strategy

RUNTIME_BYTES = 1.2e9
"""CUDA's context, libraries and captured graphs, outside PyTorch. Recalled from start logs, which print 1 to 2 GiB for
one GPU; not measured by us."""
RANKS_BYTES = 1.5e9
"""Communicators and the workspaces of the all-reduce. Recalled in the same way: 2 to 4 GiB with them on eight GPUs."""
SLACK_BYTES, RANKS_SLACK_BYTES = 1.0e9, 1.5e9
"""How far these may be off, 90%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """One rank of a pipeline stage."""

    held: RankBytes
    kv: float
    usable: float
    blocks: int


def memory(deployment: Deployment) -> MemoryUse:
    """Parts of one rank of the fullest stage; below zero for the cache, the model does not fit."""
    model, strategy, settings = deployment.model, deployment.strategy, deployment.settings
    ranks = [_rank(deployment, stage) for stage in degrees.stages(model, strategy.pp)]
    fullest = min(ranks, key=lambda rank: (rank.blocks, rank.kv))
    block = int(settings["tokens_per_block"])
    per_token = model.kv_bytes_per_token(width(deployment.kv_dtype), strategy.tp)
    held = fullest.held
    use = MemoryUse(
        total_bytes=deployment.pool.chip.memory_bytes,
        usable_bytes=fullest.usable,
        parts={
            "weights": held.weights, "activations": held.activations, "runtime": held.runtime,
            "kv": max(fullest.kv, 0.0),
        },
        kv_blocks=fullest.blocks,
        kv_bytes_per_token=per_token,
        block_tokens=block,
        block_bytes=block * per_token,
        slack_bytes=SLACK_BYTES + (RANKS_SLACK_BYTES if strategy.ranks > 1 else 0.0),
        context=int(settings["max_seq_len"]),
        step_tokens=int(settings["max_num_tokens"]),
    )  # fmt: skip
    return with_tiers(use, held, deployment)


def _rank(deployment: Deployment, stage: Stage) -> _Rank:
    model, strategy, settings = deployment.model, deployment.strategy, deployment.settings
    weights = weight_bytes(model, strategy, _weights(model, stage), deployment.pool.chip.architecture)
    activations = activation_bytes(model, strategy, int(settings["max_num_tokens"]))
    runtime = RUNTIME_BYTES + (RANKS_BYTES if strategy.ranks > 1 else 0.0)
    held = RankBytes(weights=weights, activations=activations, runtime=runtime)
    held = deployment.techniques.memory(held, deployment)
    free = visible_bytes(deployment.pool.chip) - held.weights - held.activations - held.runtime
    kv = free * float(settings["kv_cache_free_gpu_memory_fraction"])
    block = int(settings["tokens_per_block"])
    page = block * stage.of(model).kv_bytes_per_token(width(deployment.kv_dtype), strategy.tp)
    blocks = int(kv // page) if page else 0
    if settings["kv_cache_max_tokens"]:
        blocks = min(blocks, int(settings["kv_cache_max_tokens"]) // block)
        kv = min(kv, blocks * page)
    usable = held.weights + held.activations + held.runtime + kv
    return _Rank(held=held, kv=kv, usable=usable, blocks=blocks if kv > 0 else min(blocks, 0))


def _weights(model: Model, stage: Stage) -> StageWeights:
    layers = [one for block in model.blocks for one in [replace(block, count=1)] * block.count]
    numbers = range(stage.start, stage.end)
    return StageWeights(
        layers=tuple(layers[numbers.start : numbers.stop]), numbers=numbers, first=stage.first, last=stage.last
    )


def activation_bytes(model: Model, strategy: Strategy, tokens: int) -> float:
    """The most that tensors of prompts of so many tokens take inside a layer."""
    dense = working_bytes(model.blocks, model.hidden, tokens, "bf16", strategy.tp)
    experts = max((_expert_values(block, model, strategy) for block in model.blocks), default=0.0)
    return max(dense, tokens * (2 * model.hidden + experts) * width("bf16"))


def _expert_values(block: Block, model: Model, strategy: Strategy) -> float:
    """Values per token of a mixture: the inputs and outputs of each expert it is sent to, and what is between."""
    ffn = block.ffn
    if not isinstance(ffn, MoeFfn):
        return 0.0
    inner = ffn.inner if strategy.ep > 1 else ffn.inner / strategy.tp
    share = strategy.ep if strategy.ep > 1 else 1
    return strategy.dp * ffn.topk / share * (3 * inner + 2 * model.hidden)
