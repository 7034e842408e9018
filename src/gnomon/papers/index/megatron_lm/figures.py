"""Megatron-LM (Narayanan et al. 2021): tables 1 and 2, the interleaved schedule, sends in parts, whole runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gnomon
from gnomon.accuracy.published import counted_flops
from gnomon.catalog.published import published_training
from gnomon.papers.base import Ours
from gnomon.spec.answers import TrainingReport

TERA, DAY_S = 1e12, 86400.0
COMMON: dict[str, Any] = {"dtype": "fp16", "seq": 2048, "recompute": "full", "sequence_parallel": False}
THEN: dict[str, Any] = COMMON | {"engine": "megatron@2.4"}
GPT3 = "gpt3-175b"
TABLES = ("narayanan-2021-table-1", "narayanan-2021-table-2")
LAST = "GPT of 1,008 billion, 3,072 GPUs"

ZERO3 = (
    # model, GPUs, sequences a step, micro-batch
    ("gpt3-175b", 384, 1536, 4),
    ("gpt3-175b", 768, 1536, 2),
    ("gpt3-175b", 1536, 1536, 1),
    ("gpt-529.6b", 640, 2560, 4),
    ("gpt-529.6b", 1120, 2240, 2),
    ("gpt-529.6b", 2240, 2240, 1),
)
"""Table 2's rows of ZeRO stage 3."""
DAYS = (
    # TFLOP/s a GPU, parameters in billions, GPUs, tokens in billions
    (144, 174.6, 384, 300), (88, 174.6, 768, 300), (44, 174.6, 1536, 300),
    (138, 529.6, 640, 300), (98, 529.6, 1120, 300), (48, 529.6, 2240, 300),
    (153, 174.6, 384, 300), (149, 174.6, 768, 300), (141, 174.6, 1536, 300),
    (171, 529.6, 560, 300), (167, 529.6, 1120, 300), (159, 529.6, 2240, 300),
    (140, 175.0, 1024, 300), (163, 1008.0, 3072, 450),
)  # fmt: skip
"""Table 2's last column, and the two runs of the paper's section on training times."""
BATCHES = (12, 24, 36, 48, 60)


def _rate(answer: TrainingReport) -> float:
    """TFLOP/s a GPU as the paper counts them."""
    job = answer.step.job
    gpu_s: float = answer.step_time_s.value * job.plan.strategy.ranks
    return counted_flops(job.model, job.load) / (gpu_s * TERA)


def _tables() -> Iterator[Ours]:
    for table in (table for table in published_training() if table.name in TABLES):
        for run in table.runs:
            answer = gnomon.simulate_training(run.model, on=run.on, **run.options)
            yield f"{table.table.split(',')[0]}, {run.model} on {answer.plan.strategy.ranks}", _rate(answer)


def _zero3() -> Iterator[Ours]:
    for model, chips, batch, micro in ZERO3:
        answer = gnomon.simulate_training(
            model,
            on=f"A100-SXM-80GB:{chips}",
            global_batch=batch,
            micro_batch=micro,
            zero=3,
            engine="deepspeed@0.3",
            **COMMON,
        )
        yield f"Table 2, ZeRO-3, {model} on {chips}", _rate(answer)


def _small(batch: int, vp: int) -> float:
    words = THEN | {"tp": 8, "pp": 12, "vp": vp, "micro_batch": 1}
    return _rate(gnomon.simulate_training(GPT3, on="A100-SXM-80GB:96", global_batch=batch, **words))


def _interleaved() -> Iterator[Ours]:
    found = [_small(batch, 4) for batch in BATCHES]
    gain = min(each / _small(batch, 1) for each, batch in zip(found, BATCHES, strict=True))
    yield "Figure 12, least gain of interleaving, batches of 12 to 60", gain
    for batch, ours in zip(BATCHES, found, strict=True):
        yield f"Figure 18, sends in parts, a batch of {batch}", ours


def _runs() -> Iterator[Ours]:
    words = THEN | {"global_batch": 1536, "tp": 8, "pp": 16, "micro_batch": 1}
    gpt3 = gnomon.simulate_training(GPT3, on="A100-SXM-80GB:1024", tokens=300e9, **words)
    yield "GPT-3 on 1,024 GPUs", _rate(gpt3)
    yield "GPT-3 on 1,024 GPUs, 300 billion tokens", gpt3.run["days"]
    words = THEN | {"global_batch": 3072, "tp": 8, "pp": 64, "micro_batch": 1}
    last = gnomon.simulate_training("gpt-1008b", on="A100-SXM-80GB:3072", tokens=450e9, **words)
    yield f"{LAST}, all together", _rate(last) * 3072 / 1e3
    yield f"{LAST}, 450 billion tokens", last.run["days"]


def _days() -> Iterator[Ours]:
    for rate, parameters, chips, tokens in DAYS:
        seconds = 8 * (tokens * 1e9) * (parameters * 1e9) / (chips * rate * TERA)
        yield f"8 T P / n X: {parameters:g} billion parameters on {chips} at {rate} TFLOP/s", seconds / DAY_S


def figures() -> Iterator[Ours]:
    yield from _tables()
    yield from _zero3()
    yield from _interleaved()
    yield from _runs()
    yield from _days()
