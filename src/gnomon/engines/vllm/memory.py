"""What vLLM leaves for the KV cache on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.engines.base import Deployment, MemoryUse
from gnomon.graph.dtypes import width
from gnomon.spec import Attention, Model, MoeFfn

RUNTIME_BYTES = 0.62e9
"""CUDA context, libraries and workspaces that torch does not count. Measured with vLLM 0.24 on an H200: the
difference between what is taken and the parts below for Llama-3.2 1B and 3B."""
LOGIT_COPIES = 2.0
"""fp32 copies of the logits of `max_num_seqs` rows that the profiling run holds at once."""
NULL_BLOCKS = 1
"""vLLM keeps the first block for itself."""


def weight_bytes(model: Model, dtype: str, tp: int) -> float:
    """Weights of one rank: matrices of the blocks in the given format, embedding, head and router in bf16."""
    wide = model.embedding_parameters + model.head_parameters
    routers = sum(b.count * b.ffn.experts * model.hidden for b in model.blocks if isinstance(b.ffn, MoeFfn))
    body = model.parameters - wide - routers
    copied = sum(
        b.count * 2 * model.hidden * b.mixer.head_dim * max(0, tp - b.mixer.kv_heads)
        for b in model.blocks
        if isinstance(b.mixer, Attention)
    )
    return ((body + copied) * width(dtype) + wide * width("bf16")) / tp + routers * width("bf16")


def activation_bytes(model: Model, settings: Mapping[str, Any], tp: int) -> float:
    """Largest working set of a step: hidden states, the widest feed-forward, and the logits."""
    tokens, rows = int(settings["max_num_batched_tokens"]), int(settings["max_num_seqs"])
    inner = 0.0
    for block in model.blocks:
        if isinstance(block.ffn, MoeFfn):
            inner = max(inner, block.ffn.topk * (model.hidden + 3.0 * block.ffn.inner / tp))
        elif block.ffn is not None:
            inner = max(inner, 3.0 * block.ffn.inner / tp)
    hidden = tokens * (4.0 * model.hidden + inner) * width("bf16")
    logits = rows * model.vocab * width("fp32") * LOGIT_COPIES
    return max(hidden, logits)


def memory(deployment: Deployment) -> MemoryUse:
    """Parts of one rank. The cache gets what the utilisation share leaves; below zero the model does not fit."""
    model, settings, tp = deployment.model, deployment.settings, deployment.strategy.tp
    total = deployment.pool.chip.memory_bytes
    usable = total * settings["gpu_memory_utilization"]
    weights = weight_bytes(model, deployment.dtype, tp)
    activations = activation_bytes(model, settings, tp)
    kv = usable - weights - activations - RUNTIME_BYTES
    per_token = model.kv_bytes_per_token(width(deployment.kv_dtype), tp)
    blocks = int(kv // (max(per_token, 1.0) * settings["block_size"])) - NULL_BLOCKS
    return MemoryUse(
        total_bytes=total,
        usable_bytes=usable,
        parts={"weights": weights, "activations": activations, "runtime": RUNTIME_BYTES, "kv": max(kv, 0.0)},
        kv_blocks=blocks if kv > 0 else min(blocks, 0),
        kv_bytes_per_token=per_token,
    )
