"""Deployments and their step costs, and the plain sum over the graph to hold them against."""

from __future__ import annotations

from functools import cache
from typing import Any

from gnomon.cost.compiled import TableStepCost
from gnomon.cost.machine import Machine
from gnomon.engines import Deployment, Engine
from gnomon.graph.phases import is_padded
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.load.profiles import profile_for
from gnomon.spec import Batch, Strategy

CASES = {
    "8b": ("llama-3.1-8b", "H200", "bf16", "bf16"),
    "8b in fp8": ("llama-3.1-8b", "H100", "fp8", "fp8"),
    "70b on four": ("llama-3.1-70b", "H100:4", "bf16", "bf16"),
    "experts": ("qwen3-30b-a3b", "H200", "bf16", "bf16"),
    "windows": ("gemma-3-1b", "H200", "bf16", "bf16"),
    "chunks": ("llama-4-scout", "H200:4", "bf16", "bf16"),
    "latents": ("deepseek-v3", "H200:8", "fp8", "bf16"),
    "chosen": ("deepseek-v3.2-exp", "H200:8", "fp8", "bf16"),
    "states": ("nemotron-nano-9b-v2", "H200", "bf16", "bf16"),
    "delta": ("qwen3-next-80b-a3b", "H200:2", "bf16", "bf16"),
}


@cache
def deployed(name: str, **settings: Any) -> tuple[Engine, Deployment]:
    model, on, dtype, kv_dtype = CASES[name]
    pool = parse_pool(on)
    return deploy(
        load_model(model),
        pool,
        strategy=Strategy(tp=pool.count),
        dtype=dtype,
        kv_dtype=kv_dtype,
        settings={"max_model_len": 16384} | settings,
    )


@cache
def cost_of(name: str) -> TableStepCost:
    engine, deployment = deployed(name)
    cost = engine.step_cost(deployment)
    assert isinstance(cost, TableStepCost)
    return cost


def plain_device_s(name: str, batch: Batch, padded: Batch | None = None) -> float:
    """Every operator of the graph, priced by itself; what follows sequences on the batch, all else on the
    padded one."""
    engine, deployment = deployed(name)
    on = Machine(deployment.pool, profile_for(deployment.pool.chip))
    around = batch if padded is None else padded
    ops = engine.graph(deployment).ops
    return sum(float(on.op_seconds(op, around if is_padded(op) else batch)[0]) for op in ops)
