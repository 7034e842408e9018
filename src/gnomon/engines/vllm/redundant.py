"""Weights of redundant experts, of which vLLM's balancer keeps further copies."""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.base import Deployment
from gnomon.engines.vllm.experts import popularity_of
from gnomon.engines.vllm.weights import StageWeights, weight_bytes
from gnomon.graph.dtypes import STATE, width
from gnomon.spec import MoeFfn


def redundant_bytes(deployment: Deployment, stage: StageWeights) -> float:
    """On one rank of a stage; the router has no more rows."""
    redundant = popularity_of(deployment.settings).redundant
    mixtures = [block for block in stage.layers if isinstance(block.ffn, MoeFfn)]
    if not (redundant and mixtures):
        return 0.0

    def held(count: int) -> float:
        layers = tuple(
            replace(block, ffn=replace(block.ffn, experts=block.ffn.experts + count))
            if isinstance(block.ffn, MoeFfn)
            else block
            for block in stage.layers
        )
        chip = deployment.pool.chip.architecture
        return weight_bytes(deployment.model, deployment.strategy, replace(stage, layers=layers), chip)

    routers = len(mixtures) * redundant * deployment.model.hidden * width(STATE)
    return held(redundant) - held(0) - routers
