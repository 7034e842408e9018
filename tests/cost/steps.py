"""Deployments of every mixer, their step models and tables."""

from __future__ import annotations

from functools import cache
from typing import Any

from gnomon.cost.step import StepModel
from gnomon.cost.table import TableStepCost
from gnomon.engines import Deployment, Engine
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.planning.deploy import deploy
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


def model_of(name: str) -> StepModel:
    engine, deployment = deployed(name)
    return engine.step_model(deployment)


def device_s(name: str, batch: Batch) -> float:
    """What a step's operators take, priced one by one."""
    return sum(line.time_s.value for line in model_of(name).price(batch).operators)
