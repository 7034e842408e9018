"""Parallel degrees as vLLM 0.24 takes them: what it runs, how it shares layers and experts, and what is priced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines.base import Deployment, StageWork
from gnomon.engines.vllm.experts import check_popularity, popularity_of
from gnomon.engines.vllm.formats import run_model
from gnomon.engines.vllm.states import state_dtype
from gnomon.errors import InputError
from gnomon.graph import Graph, lower_cut, paged_cut
from gnomon.graph.context import decode_context
from gnomon.graph.popularity import with_popularity
from gnomon.graph.sizes import merged
from gnomon.graph.stages import Stage, crossings, cut, received
from gnomon.spec import AttentionMixer, Model, MoeFfn, Strategy

CONTEXT = "decode_context_parallel_size"
SEQUENCE_PARALLEL_MOE = (
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm_moe_dsa",
    "qwen3_moe",
    "qwen3_vl_moe",
    "qwen3_5_moe",
    "qwen3_next",
    "gpt_oss",
    "llama4",
    "llama4_text",
    "granitemoe",
    "nemotron_h",
)
"""Families whose layers split their tokens among tensor-parallel ranks before experts that data-parallel ranks share
(`use_sequence_parallel_moe` in vLLM's models). The others run the same tokens on all of them."""


def arranged(strategy: Strategy, settings: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
    """Context parallelism as vLLM has it: a setting that spreads the cache inside the tensor-parallel group, and takes
    no further chips. Its other kind, of prompts, has no attention kernel yet."""
    given = dict(settings)
    if strategy.cp > 1:
        known = given.setdefault(CONTEXT, strategy.cp)
        if str(known) != str(strategy.cp):
            raise InputError(f"{strategy.cp} and the setting {CONTEXT} {known} differ", where="--cp", hint="Give one.")
    return replace(strategy, cp=1), given


def check(deployment: Deployment) -> None:
    """Raise InputError for degrees vLLM refuses, and for those whose time is not known."""
    model, strategy = deployment.model, deployment.strategy
    _check_experts(model, strategy)
    check_popularity(deployment)
    if strategy.pp > model.layers:
        raise InputError(
            f"{strategy.pp} stages are more than the {model.layers} layers of {model.name}",
            where="pp",
            hint=f"Use at most {model.layers}.",
        )
    _check_context(model, strategy.tp, shared_cache(deployment))


def shared_cache(deployment: Deployment) -> int:
    """Ranks that share the cache of one key-value head."""
    return int(deployment.settings.get(CONTEXT, 1))


def _check_experts(model: Model, strategy: Strategy) -> None:
    tp, pp, dp, ep = strategy.tp, strategy.pp, strategy.dp, strategy.ep
    if ep == 1:
        return
    if not model.is_moe:
        raise InputError(f"{model.name} has no experts to spread over {ep} ranks", where="ep", hint="Leave --ep out.")
    if ep != tp * dp:
        raise InputError(
            f"vLLM spreads experts over all tensor- and data-parallel ranks, here {tp * dp}, or over none; {ep} is "
            "neither",
            where="ep",
            hint=f"Use --ep {tp * dp}, or 1 for experts cut by width.",
        )
    fewest = min(block.ffn.experts for block in model.blocks if isinstance(block.ffn, MoeFfn))
    if ep > fewest:
        raise InputError(
            f"{ep} ranks are more than the {fewest} experts of a layer of {model.name}",
            where="ep",
            hint=f"Lower --tp or --dp until they are {fewest} or fewer.",
        )
    if sequence_parallel_moe(model, strategy) and pp > 1:
        raise InputError(
            f"experts over tensor, pipeline and data parallelism at once (tp {tp}, pp {pp}, dp {dp}) are not priced",
            where="pp",
            hint=f"Use --pp 1 with --dp {dp * pp} --ep {tp * dp * pp}, or --tp 1.",
        )


def _check_context(model: Model, tp: int, ranks: int) -> None:
    """Query heads that share a key-value head must be a multiple of the ranks."""
    if ranks == 1:
        return
    mixers = [block.mixer for block in model.blocks if isinstance(block.mixer, AttentionMixer)]
    if len(mixers) < len(model.blocks) or any(mixer.window for mixer in mixers):
        raise InputError(
            f"the cache of {model.name} spread over {ranks} ranks is not priced yet",
            where="--cp",
            hint="It is where all layers attend to the whole context, by heads of keys and values.",
        )
    kv_heads = max(mixer.kv_heads for mixer in mixers)
    grouped = min(mixer.heads // mixer.kv_heads for mixer in mixers)
    most = tp // kv_heads
    possible = [n for n in range(1, most + 1) if tp % n == 0 and grouped % n == 0] or [1]
    if ranks not in possible:
        raise InputError(
            f"{ranks} ranks cannot share the cache of {model.name} at tp {tp}: vLLM splits it among ranks that hold "
            f"the same of its {kv_heads} key-value heads",
            where="--cp",
            hint=f"Possible here: {', '.join(map(str, possible))}. More tensor-parallel ranks than key-value heads "
            "allow more.",
        )


def sequence_parallel_moe(model: Model, strategy: Strategy) -> bool:
    """Whether tensor-parallel ranks split their tokens before the experts, as vLLM does only where all of it is on."""
    return strategy.ep > 1 and strategy.tp > 1 and strategy.dp > 1 and model.family in SEQUENCE_PARALLEL_MOE


def stages(model: Model, pp: int) -> tuple[Stage, ...]:
    """Layers shared as vLLM shares them: evenly, and what is left over goes to the stages before the last."""
    even, left = divmod(model.layers, pp)
    layers = [even] * pp
    for index in range(2, left + 2):
        layers[-index] += 1
    return cut(layers)


def stage_work(deployment: Deployment) -> tuple[StageWork, ...]:
    """The operators of one rank of each stage."""
    strategy, pool = deployment.strategy, deployment.pool
    model = run_model(deployment)
    far = (False, *crossings(strategy, pool.per_node))
    part = paged_cut(
        model,
        strategy,
        deployment.dtype,
        deployment.kv_dtype,
        state_dtype(deployment.model),
        sequence_parallel_moe=sequence_parallel_moe(deployment.model, strategy),
        fill=deployment.dp_load_ratio,
    )
    passes = deployment.techniques.passes(deployment)
    found = []
    for stage, crosses in zip(stages(deployment.model, strategy.pp), far, strict=True):
        graph = lower_cut(stage.of(model), part, stage.ends, passes)
        graph = decode_context(graph, shared_cache(deployment))
        graph = with_popularity(graph, popularity_of(deployment.settings))
        joined = () if stage.first else tuple(received(deployment.model, strategy, crosses, pool.per_node))
        found.append(StageWork(layers=stage.layers, graph=Graph((*joined, *graph.ops))))
    return tuple(found)


def walk(work: tuple[StageWork, ...]) -> Graph:
    """All stages one after another: what one batch passes through. Equal operators become one that runs more often."""
    if len(work) == 1:
        return work[0].graph
    return Graph(tuple(merged(op for stage in work for op in stage.graph.ops)))
