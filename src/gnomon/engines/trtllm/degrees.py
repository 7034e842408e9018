"""Parallel degrees as TensorRT-LLM 1.2 takes them: what it runs, how it shares layers and experts, and what is priced.

`--tp` is `--tp_size`; experts are cut by width over the same ranks, or spread over all of them (`--ep_size`). `--dp` is
attention data parallelism (`enable_attention_dp`): `--tp_size` is then its degree, and every rank has the attention of
its own sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnomon.engines.base import Deployment, StageWork
from gnomon.engines.trtllm.formats import run_model
from gnomon.engines.trtllm.fusion import fused
from gnomon.errors import InputError
from gnomon.graph import Graph, lower_cut, paged_cut
from gnomon.graph.sizes import merged
from gnomon.graph.stages import Stage, crossings, cut, received
from gnomon.spec import Model, MoeFfn, Strategy

if TYPE_CHECKING:
    from gnomon.sim.serving.balancers import FewestTokens


def arranged(strategy: Strategy, settings: Mapping[str, Any]) -> tuple[Strategy, dict[str, Any]]:
    if strategy.cp > 1:
        raise InputError(
            f"context parallelism of {strategy.cp} (Helix) is not priced under TensorRT-LLM",
            where="--cp",
            hint="Leave it at 1.",
        )
    return strategy, dict(settings)


def check(deployment: Deployment) -> None:
    """Raise InputError for degrees TensorRT-LLM refuses, and for those whose time is not known."""
    model, strategy = deployment.model, deployment.strategy
    _check_experts(model, strategy)
    if strategy.pp > model.layers:
        raise InputError(
            f"{strategy.pp} stages are more than the {model.layers} layers of {model.name}",
            where="pp",
            hint=f"Use at most {model.layers}.",
        )
    if strategy.dp > 1 and strategy.tp > 1:
        raise InputError(
            f"attention is either cut ({strategy.tp} ranks) or data-parallel ({strategy.dp}) under TensorRT-LLM",
            where="dp",
            hint=f"Use --tp 1 --dp {strategy.tp * strategy.dp}, or --dp 1.",
        )


@dataclass(frozen=True, slots=True)
class QueueBalancer:
    """Makes the balancer of the ranks' one queue; limits that have one are equal where all else is."""

    places: int
    """Requests that a rank may have."""

    def __call__(self, ranks: int) -> FewestTokens:
        from gnomon.sim.serving.balancers import FewestTokens  # one step simulates nothing

        return FewestTokens(ranks, self.places)


def limits(deployment: Deployment) -> dict[str, Any]:
    """What a scheduler must know of the others of its replica. With attention data parallelism all ranks take requests
    from one queue, `max_batch_size` each at most, by their tokens (`_balance_requests_across_ranks` of
    `_torch/pyexecutor/executor_request_queue.py`)."""
    places = int(deployment.settings["max_batch_size"])
    dp = deployment.strategy.dp
    return {"ranks": dp, "balancer": QueueBalancer(places)} if dp > 1 else {}


def _check_experts(model: Model, strategy: Strategy) -> None:
    ranks, ep = strategy.tp * strategy.dp, strategy.ep
    if ep == 1:
        return
    if not model.is_moe:
        raise InputError(f"{model.name} has no experts to spread over {ep} ranks", where="ep", hint="Leave --ep out.")
    if ep != ranks:
        raise InputError(
            f"experts spread over {ep} of {ranks} ranks and cut over the rest are not priced",
            where="ep",
            hint=f"Use --ep {ranks}, or 1 for experts cut by width.",
        )
    fewest = min(block.ffn.experts for block in model.blocks if isinstance(block.ffn, MoeFfn))
    if ep > fewest:
        raise InputError(
            f"{ep} ranks are more than the {fewest} experts of a layer of {model.name}",
            where="ep",
            hint=f"Use at most {fewest} ranks.",
        )


def stages(model: Model, pp: int) -> tuple[Stage, ...]:
    """Layers shared as `Mapping.pp_layers` does: evenly, and what is left over goes to the first stages."""
    even, left = divmod(model.layers, pp)
    return cut([even + (index < left) for index in range(pp)])


def stage_work(deployment: Deployment) -> tuple[StageWork, ...]:
    """The operators of one rank of each stage."""
    strategy, pool, model = deployment.strategy, deployment.pool, run_model(deployment)
    far = (False, *crossings(strategy, pool.per_node))
    part = paged_cut(model, strategy, deployment.dtype, deployment.kv_dtype, fill=deployment.dp_load_ratio)
    passes = deployment.techniques.passes(deployment)
    found = []
    for stage, crosses in zip(stages(model, strategy.pp), far, strict=True):
        graph = fused(lower_cut(stage.of(model), part, stage.ends, passes), strategy.tp)
        joined = () if stage.first else tuple(received(model, strategy, crosses, pool.per_node))
        found.append(StageWork(layers=stage.layers, graph=Graph((*joined, *graph.ops))))
    return tuple(found)


def walk(work: tuple[StageWork, ...]) -> Graph:
    """All stages one after another: what one batch passes through. Equal operators become one that runs more often."""
    if len(work) == 1:
        return work[0].graph
    return Graph(tuple(merged(op for stage in work for op in stage.graph.ops)))
