"""Parallel degrees as SGLang 0.5.23 takes them: what it runs, how it shares layers and experts, and what is priced.

Data parallelism is that of attention (`--enable-dp-attention`): its ranks are ranks of the tensor-parallel group, which
share the experts. So `--tp-size` is the product of both degrees here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines.base import Deployment, StageWork
from gnomon.engines.vllm.degrees import stages
from gnomon.engines.vllm.formats import EXPERTS, run_model
from gnomon.engines.vllm.kernels import TRITON, TRTLLM
from gnomon.engines.vllm.states import state_dtype
from gnomon.errors import InputError
from gnomon.graph import Graph, lower_cut, paged_cut
from gnomon.graph.sizes import merged
from gnomon.graph.stages import crossings, received
from gnomon.spec import Chip, Model, MoeFfn, Strategy


def arranged(strategy: Strategy, settings: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
    """Degrees as they are; context parallelism is not modelled."""
    if strategy.cp > 1:
        raise InputError(
            f"{strategy.cp} ranks that share a sequence's cache under SGLang are not modelled",
            where="--cp",
            hint="Use --tp.",
        )
    return replace(strategy, cp=1), dict(settings)


def check(deployment: Deployment) -> None:
    """Raise InputError for degrees SGLang refuses, and for those whose time is not known."""
    model, strategy = deployment.model, deployment.strategy
    if strategy.pp > model.layers:
        raise InputError(
            f"{strategy.pp} stages are more than the {model.layers} layers of {model.name}",
            where="pp",
            hint=f"Use at most {model.layers}.",
        )
    if strategy.dp > 1 and not model.is_moe:
        raise InputError(
            f"data-parallel ranks of {model.name}, which has no experts to share, are servers of their own in SGLang",
            where="dp",
            hint="Use replicas: `gnomon plan serve` counts them.",
        )
    _check_experts(model, strategy)


def _check_experts(model: Model, strategy: Strategy) -> None:
    tp, dp, ep = strategy.tp, strategy.dp, strategy.ep
    if ep == 1:
        return
    if not model.is_moe:
        raise InputError(f"{model.name} has no experts to spread over {ep} ranks", where="ep", hint="Leave --ep out.")
    if ep != tp * dp:
        raise InputError(
            f"experts spread over {ep} of {tp * dp} ranks under SGLang are not priced",
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


def experts_priced(chip: Chip) -> list[tuple[str, str]]:
    """Settings of experts' kernels that act on a chip."""
    return [("moe_runner_backend", name) for name in (TRITON, TRTLLM) if chip.architecture == "Blackwell"]


def experts_kernel(deployment: Deployment) -> str:
    """Triton's experts on Blackwell: where they are asked for, and in 16 bits, which FlashInfer's experts run only if
    they are named (`UnquantizedFusedMoEMethod`). Empty elsewhere: all others are priced as those that SGLang picks."""
    asked, chip = deployment.settings.get("moe_runner_backend"), deployment.pool.chip
    mixtures = [block for block in deployment.model.blocks if isinstance(block.ffn, MoeFfn)]
    if chip.architecture != "Blackwell":
        return ""
    if not mixtures:
        if asked == TRITON:
            where = "setting moe_runner_backend"
            raise InputError(f"{deployment.model.name} has no experts", where=where, hint="Leave it out.")
        return ""
    wide = not any(role.startswith(EXPERTS) for block in mixtures for role, _ in block.formats)
    return TRITON if asked == TRITON or (wide and asked != TRTLLM) else ""


def stage_work(deployment: Deployment) -> tuple[StageWork, ...]:
    """The operators of one rank of each stage."""
    strategy, per_node = deployment.strategy, deployment.pool.per_node
    model = run_model(deployment, experts_kernel(deployment))
    far = (False, *crossings(strategy, per_node))
    states = state_dtype(deployment.model)
    part = paged_cut(
        model, strategy, deployment.dtype, deployment.kv_dtype, states, fill=deployment.dp_load_ratio
    )  # fmt: skip
    passes = deployment.techniques.passes(deployment)
    found = []
    for stage, crosses in zip(stages(deployment.model, strategy.pp), far, strict=True):
        graph = lower_cut(stage.of(model), part, stage.ends, passes)
        joined = () if stage.first else tuple(received(deployment.model, strategy, crosses, per_node))
        found.append(StageWork(layers=stage.layers, graph=Graph((*joined, *graph.ops))))
    return tuple(found)


def walk(work: tuple[StageWork, ...]) -> Graph:
    """All stages one after another: what one batch passes through."""
    if len(work) == 1:
        return work[0].graph
    return Graph(tuple(merged(op for stage in work for op in stage.graph.ops)))
