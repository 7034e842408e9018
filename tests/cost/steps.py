"""Step models and tables of every mixer, in dense layers and with experts, on one rank and on two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from gnomon.cost.step import StepModel
from gnomon.cost.table import TableStepCost
from gnomon.engines import Deployment, Engine
from gnomon.graph.phases import is_padded
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Batch, Model, Strategy
from gnomon.spec.workload import Floats

LONGEST = 16384
MIXERS = {
    "softmax": "llama-3.1-8b",
    "windows": "gemma-3-1b",
    "chunks": "llama-4-scout",
    "latent": "deepseek-v2-lite",
    "indexer": "deepseek-v3.2-exp",
    "mamba": "mamba-2.8b",
    "mamba-2": "nemotron-nano-9b-v2",
    "delta": "qwen3-next-80b-a3b",
    "lightning": "minimax-text-01",
    "convolution": "lfm2-1.2b",
}
FFNS = {"dense": "llama-3.1-8b", "experts": "qwen3-30b-a3b"}
FP8 = "softmax, dense, fp8"
WIDE = "softmax, dense, 4 x H100"
CASES = [f"{mixer}, {ffn}, tp {tp}" for mixer in MIXERS for ffn in FFNS for tp in (1, 2)] + [FP8, WIDE]
WINDOWED = ("windows", "chunks", "indexer")
"""Chunks of prompts are told apart by a table, where a batch has their sums: equal ones are compared."""


def grafted(mixer: str, ffn: str) -> Model:
    """A network of the catalog with this mixer, its layers' second halves from another."""
    model, donor = load_model(MIXERS[mixer]), load_model(FFNS[ffn]).blocks[0].ffn
    return replace(model, blocks=tuple(replace(block, ffn=donor) for block in model.blocks))


@cache
def deployed(case: str, **settings: Any) -> tuple[Engine, Deployment]:
    mixer, ffn, how = case.split(", ")
    on, dtype = {FP8: ("H100", "fp8"), WIDE: ("H100:4", "bf16")}.get(case, (f"H200:{how[-1]}", "bf16"))
    pool = parse_pool(on)
    return deploy(
        grafted(mixer, ffn),
        pool,
        strategy=Strategy(tp=pool.count),
        dtype=dtype,
        kv_dtype=dtype,
        settings={"max_model_len": LONGEST} | settings,
    )


@cache
def model_of(case: str) -> StepModel:
    engine, deployment = deployed(case)
    return engine.step_model(deployment)


@cache
def table_of(case: str) -> TableStepCost:
    engine, deployment = deployed(case)
    table = engine.step_cost(deployment)
    assert isinstance(table, TableStepCost)
    return table


def plain_s(case: str, steps: Batch) -> Floats:
    """Device seconds of each of these steps: the plain sum over its operators, and the gap before it."""
    model = model_of(case)
    padded = model.host.steps(steps).padded
    ops = model.graph.ops
    device = sum(model.machine.op_seconds(op, padded if is_padded(op) else steps) for op in ops)
    return np.asarray(device + model.host.gap(steps.decodes + steps.prefills))


def decode_s(case: str, sequences: int, contexts: Sequence[int]) -> Floats:
    """Decode steps, which the host may hold up."""
    return np.maximum(plain_s(case, Batch.decode(sequences, contexts)), model_of(case).host.decode(sequences))
