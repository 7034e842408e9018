"""Nexus (Shi et al. 2025): prompts and decodes at once on shares of a GPU, beside chunks of prompts among decodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gnomon.papers.base import Ours
from gnomon.papers.loads import PaperReplica, lognormal, poisson
from gnomon.spec import Requests

MODEL, CARDS, CHUNK = "qwen2.5-14b", "L20:2", 2048
DOCUMENTS, GOAL_S = 0.4, 0.1
"""Share of long documents, and the mean latency per token of answer that counts."""
COUNT, STEPS, LOWEST, HIGHEST = 400, 9, 0.05, 20.0


def _requests(rate: float) -> Requests:
    long = np.random.default_rng(2).random(COUNT) < DOCUMENTS
    inputs = np.where(long, lognormal(5546, 1422 / 5546, COUNT, 3, 16000), lognormal(220, 1.0, COUNT, 4, 4000))
    outputs = np.where(long, lognormal(174, 175 / 174, COUNT, 5, 4000), lognormal(200, 1.0, COUNT, 6, 4000))
    return poisson(rate, inputs, outputs, COUNT)


def _rate(techniques: Sequence[str]) -> float:
    """The highest rate within the goal."""
    settings = {"max_num_batched_tokens": CHUNK, "enable_prefix_caching": False}
    replica = PaperReplica(
        model=MODEL, on=CARDS, engine="vllm", settings=settings, techniques=techniques, longest=20480
    )
    low, high = LOWEST, HIGHEST
    for _ in range(STEPS):
        middle = (low * high) ** 0.5
        run = replica.serve(_requests(middle))
        latency_s = float(np.mean((run.finish_s - run.requests.arrival_s) / run.requests.output_tokens))
        low, high = (middle, high) if latency_s <= GOAL_S else (low, middle)
    return low


def figures() -> Iterator[Ours]:
    yield "highest rate, over vLLM", _rate(("semi-disaggregated",)) / _rate(())
