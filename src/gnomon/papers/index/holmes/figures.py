"""Holmes (Yang et al. 2023): GPT on nodes with InfiniBand, RoCE or Ethernet, and on islands of two kinds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import gnomon
from gnomon.accuracy.published import counted_flops
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster
from gnomon.spec.answers import TrainingReport

NODE, TERA = 8, 1e12
CARDS: dict[str, dict[str, Any]] = {
    "InfiniBand": {"scaleout": "InfiniBand HDR", "adapters": 4},
    "RoCE": {"scaleout": "RoCE 200", "adapters": 2},
    "Ethernet": {"scaleout": "Ethernet 25", "adapters": 1},
}
COMMON: dict[str, Any] = {
    "seq": 2048, "micro_batch": 4, "dtype": "fp16", "recompute": "selective", "engine": "megatron@3.0",
}  # fmt: skip
MIXED = "7.5B, 4 RoCE and 4 InfiniBand nodes"
STAGES = ("cluster-pipeline",)
SUMS = "half-gradients"
"""The scripts train in fp16 and do not ask for sums in fp32."""


@cache
def _step(
    model: str, nodes: int, cards: str, batch: int, stages: int = 1, zero: int = 1, *given: str
) -> TrainingReport:
    on = cluster("A100-SXM-80GB", NODE * nodes, NODE, links=CARDS[cards])
    return gnomon.simulate_training(
        model, on=on, global_batch=batch, pp=stages, zero=zero, techniques=(*given, SUMS), **COMMON
    )


def _rate(found: TrainingReport, seconds: float = 0.0) -> float:
    """TFLOP/s of a GPU as Megatron counts them."""
    job, ranks = found.step.job, found.plan.strategy.ranks
    return float(counted_flops(job.model, job.load) / ((seconds or found.step_time_s.value) * ranks * TERA))


def _islands(zero: int) -> tuple[float, float]:
    """Stages in proportion to their islands take the mean of both islands' times, even ones the slower island's."""
    found = [_step("gpt-7.5b", 8, cards, 1536, 2, zero, *STAGES) for cards in ("RoCE", "InfiniBand")]
    seconds = [one.step_time_s.value for one in found]
    return _rate(found[0], sum(seconds) / 2), _rate(found[0], max(seconds))


def _mixed() -> Iterator[Ours]:
    ours, even = _islands(1)
    plain = _rate(_step("gpt-7.5b", 8, "Ethernet", 1536, 2))
    yield f"{MIXED}: Megatron-LM over Holmes", plain / ours
    yield f"{MIXED}: Holmes, a GPU", ours
    yield f"{MIXED}: no uneven split, a GPU", even
    yield f"{MIXED}: no overlapped optimizer, a GPU", _islands(0)[0]
    yield f"{MIXED}: Megatron-LM, a GPU", plain


def figures() -> Iterator[Ours]:
    yield from _mixed()
    for nodes in (4, 8):
        for cards in CARDS:
            yield f"3.6B on {nodes} nodes, {cards}: a GPU", _rate(_step("gpt-3.6b", nodes, cards, 512))
