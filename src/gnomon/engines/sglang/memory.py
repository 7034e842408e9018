"""What SGLang 0.5.23 leaves for the KV pool on one rank, and how many requests it gives slots to.

`mem_fraction_static` is the share of the memory, as it is before the weights are loaded, that weights and pool may take
together; the rest is for activations and CUDA graphs (`KVCacheConfigurator._profile_available_bytes`). Its default
follows from the sizes that are captured and chunked (`handle_gpu_memory_settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.engines.base import Deployment, MemoryUse, RankBytes
from gnomon.engines.sglang import graphs
from gnomon.engines.sglang.options import MIB, MOST_REQUESTS
from gnomon.engines.tiers import with_tiers
from gnomon.engines.vllm.reserve import visible_bytes
from gnomon.engines.vllm.weights import StageWeights, stages, weight_bytes
from gnomon.errors import InputError
from gnomon.graph.dtypes import width
from gnomon.spec import AttentionMixer, LatentAttention

GIB = 1024.0**3
CONTEXT_BYTES = 0.55 * GIB
"""CUDA context and libraries before the weights are loaded, on one H100: start logs say 78.6 GB of the 79.1 that
PyTorch sees."""
RANKS_BYTES = 1.3 * GIB
"""Communicators beside it: 137.9 GB were free on each of eight H200 before DeepSeek-V4 was loaded, of 139.8 that a
program sees (issue 2128 of SemiAnalysisAI/InferenceX)."""
LOADED_BYTES = 0.12 * GIB
"""What loading leaves beside the weights: logs say 15.1 GB of Llama-3.1-8B's 14.96."""
CONSTANT_MIB, TOKEN_MIB, RANK_MIB = 512.0, 1.5, 128.0
"""Reserved for attention's own buffers, for each token of a chunk, for each rank."""
LEAST_TOKENS = 2048
DECODE_MIB, PROMPT_MIB, LATENT_MIB = 2.0, 8.0, 1536.0
"""And for each captured sequence of the largest decode step, each captured size of steps with prompts, and all of these
together of latent attention."""
DP_MIB, DP_LARGE, DP_LARGE_MIB = 3.0, 300, 1.5
"""More for each captured sequence with data-parallel attention, and for each where there are many."""
LARGE_CHIP_MIB, LEAST_RESERVED_MIB = 60 * 1024, 10 * 1024
WINDOW_SHARE = 0.8
"""`swa_full_tokens_ratio`: tokens of the pool of layers with a window, of those that the others have."""
FEWEST, REQUESTS_PER_CONTEXT = 2048, 512
"""Request slots: that many for each longest sequence that the pool holds, within limits (`resolve_max_num_reqs`)."""
SLACK_BYTES = 0.6 * GIB
"""How far the room for the pool may be off, 90%, of an engine whose starts were not measured here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPool:
    """The KV pool of a deployment."""

    tokens: int
    requests: int
    """Request slots."""


def static_share(deployment: Deployment) -> float:
    """`mem_fraction_static`, given or as SGLang sets it."""
    given = deployment.settings["mem_fraction_static"]
    if given is not None:
        return float(given)
    memory = deployment.pool.chip.memory_bytes / MIB
    return round((memory - reserved_mib(deployment)) / memory, 3)


def reserved_mib(deployment: Deployment) -> float:
    """What SGLang expects activations and CUDA graphs to take."""
    settings, model, strategy, chip = deployment.settings, deployment.model, deployment.strategy, deployment.pool.chip
    chunk = int(settings["chunked_prefill_size"])
    tokens = max(chunk if chunk > 0 else int(settings["max_prefill_tokens"]), LEAST_TOKENS)
    reserved = CONSTANT_MIB + TOKEN_MIB * tokens + RANK_MIB * strategy.tp * strategy.dp * strategy.pp
    if not settings["disable_cuda_graph"]:
        reserved += DECODE_MIB * graphs.largest_decode(settings, chip, strategy)
    if strategy.dp > 1:
        captured = graphs.largest_decode(settings, chip, strategy) * strategy.dp
        reserved += captured * (DP_MIB + (DP_LARGE_MIB if captured > DP_LARGE * strategy.dp else 0.0))
    prompts = graphs.prompt_sizes(settings, model, strategy)
    if prompts:
        reserved += LATENT_MIB if graphs.latent(model) else PROMPT_MIB * len(prompts)
    return max(reserved, LEAST_RESERVED_MIB) if chip.memory_bytes / MIB > LARGE_CHIP_MIB else reserved


def free_bytes(deployment: Deployment) -> float:
    """Memory of a rank before its weights are loaded."""
    ranks = RANKS_BYTES if deployment.strategy.ranks > 1 else 0.0
    return visible_bytes(deployment.pool.chip) - CONTEXT_BYTES - ranks


def memory(deployment: Deployment) -> MemoryUse:
    """Parts of one rank of the fullest stage. Below zero the model does not fit."""
    free, share = free_bytes(deployment), static_share(deployment)
    page = int(deployment.settings["page_size"])
    model, strategy, chip = deployment.model, deployment.strategy, deployment.pool.chip
    fullest: tuple[int, RankBytes, float, float] | None = None
    for stage in stages(model, strategy.pp):
        weights = weight_bytes(model, strategy, stage, chip.architecture)
        plain = RankBytes(
            weights=weights, activations=free * (1 - share) + LOADED_BYTES, runtime=chip.memory_bytes - free
        )
        held = deployment.techniques.memory(plain, deployment)
        kv = free * share - weights - LOADED_BYTES - (held.total - plain.total)
        token = token_bytes(deployment, stage)
        pages = int(kv // (token * page)) if token else MOST_REQUESTS * 2**19 // page
        if fullest is None or pages < fullest[0]:
            fullest = (pages, held, kv, token)
    assert fullest is not None
    pages, held, kv, token = fullest
    limit = deployment.settings["max_total_tokens"]
    pages = pages if limit is None else min(pages, int(limit) // page)
    use = MemoryUse(
        total_bytes=chip.memory_bytes,
        usable_bytes=free * share,
        parts={
            "weights": held.weights, "activations": held.activations, "runtime": held.runtime, "kv": max(kv, 0.0),
        },
        kv_blocks=pages,
        kv_bytes_per_token=token,
        block_tokens=page,
        block_bytes=token * page,
        slack_bytes=SLACK_BYTES,
        context=int(deployment.settings["context_length"]),
        step_tokens=step_tokens(deployment),
    )  # fmt: skip
    return with_tiers(use, held, deployment)


def chunk_of(settings: Mapping[str, Any], dp: int) -> int:
    """Prompt tokens that one of so many data-parallel schedulers runs in a step: they share what one would run
    (`_handle_data_parallelism` of server_args.py); -1 where prompts are not cut."""
    chunk = int(settings["chunked_prefill_size"])
    return max(chunk // dp, 1) if chunk > 0 else chunk


def step_tokens(deployment: Deployment) -> int:
    """The most prompt tokens of one step."""
    chunk = chunk_of(deployment.settings, deployment.strategy.dp)
    if chunk > 0:
        return chunk
    return max(int(deployment.settings["max_prefill_tokens"]), int(deployment.settings["context_length"]))


def pool(deployment: Deployment) -> KvPool:
    """The KV pool, and how many requests may use it at once."""
    use = memory(deployment)
    tokens = max(use.kv_blocks, 0) * use.block_tokens
    most = int(deployment.settings["max_running_requests"])
    if most == MOST_REQUESTS:
        each = int(tokens / use.context * REQUESTS_PER_CONTEXT)
        most = max(min(each, MOST_REQUESTS), FEWEST)
    else:
        most = max(most // deployment.strategy.dp, 1)  # `max_running_requests` is of all data-parallel schedulers
    return KvPool(tokens=tokens, requests=max(1, min(most, tokens // 2)))


def token_bytes(deployment: Deployment, stage: StageWeights) -> float:
    """What a token takes of the pool on a rank, layers with a window at the share of tokens that they keep."""
    value, tp = width(deployment.kv_dtype), deployment.strategy.tp
    layers = [layer.mixer for layer in stage.layers]
    full = any(isinstance(mixer, LatentAttention) or (isinstance(mixer, AttentionMixer) and not mixer.window)
               for mixer in layers)  # fmt: skip
    total = 0.0
    for mixer in layers:
        if isinstance(mixer, LatentAttention):
            total += (mixer.kv_rank + mixer.rope_dim) * value
        elif isinstance(mixer, AttentionMixer):
            total += mixer.cache_values(tp) * value * (WINDOW_SHARE if mixer.window and full else 1.0)
    return total


def check_cache(deployment: Deployment) -> None:
    """Raise InputError for layers whose pool is not modelled."""
    for block in deployment.model.blocks:
        mixer = block.mixer
        if mixer is None or isinstance(mixer, AttentionMixer):
            continue
        if isinstance(mixer, LatentAttention) and mixer.indexer is None:
            continue
        what = "an index of its tokens" if isinstance(mixer, LatentAttention) else "states in a pool of their own"
        raise InputError(
            f"{deployment.model.name} keeps {what} under SGLang, which is not modelled",
            where="--engine",
            hint="Use --engine vllm.",
        )
