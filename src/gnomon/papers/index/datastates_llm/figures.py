"""DataStates-LLM (Maurya et al. 2024): sizes of checkpoints, and what checkpoints beside the passes save of a step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster, host
from gnomon.papers.shapes import network
from gnomon.spec.answers import TrainingReport

GIGA = 1e9
VOCAB, SEQ, MICRO_BATCH, TP, KV_HEADS = 50_304, 2048, 16, 4, 4
COPY_GB_S, FILE_SYSTEM_GB_S, ADAPTERS_GB_S = 25.0, 650.0, 50.0
BLOCKING_GB_S = 7.1
"""What DeepSpeed's own checkpoints write a second from one node: of the largest gain a step, see the inputs."""
HOST = host(cores=64, memory_gib=512, memory_gb_s=204.8, adam_gparam_s=3.1, link_gb_s=COPY_GB_S)


class Run(NamedTuple):
    layers: int
    hidden: int
    heads: int
    inner: int
    nodes: int


RUNS = {
    "3B": Run(30, 2560, 32, 11008, 1),
    "7B": Run(32, 4096, 32, 11008, 2),
    "13B": Run(40, 5120, 40, 13824, 4),
    "30B": Run(60, 6656, 52, 17920, 8),
    "70B": Run(80, 8192, 64, 28672, 20),
}
COPIES = {"13B": (1, 16), "30B": (1, 16)}
"""Whose checkpoint of one GPU is printed, with how many copies."""


@cache
def _step(name: str, dp: int, mode: str) -> TrainingReport:
    """A step with a checkpoint."""
    run = RUNS[name]
    nodes = run.nodes * dp
    write = BLOCKING_GB_S if mode == "synchronous" else min(ADAPTERS_GB_S, FILE_SYSTEM_GB_S / nodes)
    mixer = {"kind": "attention", "heads": run.heads, "kv_heads": KV_HEADS, "head_dim": run.hidden // run.heads}
    blocks = [{"count": run.layers, "mixer": mixer, "ffn": {"kind": "dense", "inner": run.inner, "gated": True}}]
    model = network(name, hidden=run.hidden, vocab=VOCAB, max_context=SEQ, blocks=blocks)
    equal = run.layers % run.nodes == 0
    return gnomon.simulate_training(
        model, on=cluster("A100-SXM-40GB", TP * nodes, TP, HOST), seq=SEQ, global_batch=MICRO_BATCH * dp,
        micro_batch=MICRO_BATCH, tp=TP, pp=run.nodes, zero=1, recompute="full", dtype="bf16",
        engine="megatron@3.0" if equal else "megatron",
        techniques=[f"async-checkpointing:every=1,mode={mode},copy_gb_s={COPY_GB_S},storage_gb_s={write}"],
    )  # fmt: skip


def _gain(name: str, dp: int = 1) -> float:
    """Of a step with DeepSpeed's own checkpoint over one with a lazy one."""
    blocked, lazy = (_step(name, dp, mode).step_time_s.value for mode in ("synchronous", "lazy"))
    return float(blocked / lazy)


def _sizes() -> Iterator[Ours]:
    for name, run in RUNS.items():
        yield f"checkpoint of {name}", _step(name, 1, "lazy").step.host_bytes * run.nodes / GIGA
    for name, copies in COPIES.items():
        for dp in copies:
            ours = _step(name, dp, "lazy").step.host_bytes / TP / GIGA
            yield f"checkpoint of one GPU, {name}, {dp} copies", ours


def figures() -> Iterator[Ours]:
    yield "run of 30B, a checkpoint every step, one copy", _gain("30B")
    yield "run of 30B, a checkpoint every step, 16 copies", _gain("30B", 16)
    yield "most of 50 steps of 7B or 13B", max(_gain("7B"), _gain("13B"))
    yield "least gain of a step with a checkpoint, 3B to 70B", min(map(_gain, RUNS))
    yield from _sizes()
