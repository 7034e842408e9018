"""Splitwise (Patel et al. 2023): prompts and tokens on machines of their own, and what each phase takes on either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.loads import PaperReplica, by_deciles, poisson
from gnomon.sim.serving.routers.least import LeastRequestsRouter
from gnomon.sim.serving.system import ServingStage, simulate_system
from gnomon.spec import Requests
from gnomon.spec.workload import Floats

ENGINE, DTYPE, MILLI = "vllm@0.2.0", "fp16", 1e-3
MODELS = {"Llama-70B": "llama-2-70b", "BLOOM": "bloom-176b"}
CHIPS = {"A100": "A100-SXM-80GB:8", "H100": "H100-SXM-80GB:8"}
PROMPTS, BATCHES = (512, 2048), (1, 16, 64)
CONTEXT = 512
INPUT = (2, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2735, 14050)
OUTPUT = (7, 54, 77, 91, 103, 129, 177, 384, 400, 424, 1000)
"""Deciles of Azure's conversations."""
REQUESTS, LONGEST = 800, 4096
"""Longer prompts than the model takes are cut."""
SHARES = (0.5, 0.9, 0.99)
TTFT, TPOT, E2E = (2, 3, 6), (1.25, 1.5, 5), (1.25, 1.5, 5)
"""How many times those of the same request alone on A100s, at the median, p90 and p99."""
RATES = tuple(5 * 1.04**i for i in range(80))


@dataclass(frozen=True, slots=True)
class ClusterDesign:
    """Machines of a cluster, a fifth of the paper's: all for both phases, or some for prompts and some for tokens."""

    chip: str
    prompts: int
    tokens: int = 0


DESIGNS = {
    "iso-power, conversation: AA over Baseline-A100": (ClusterDesign("A100", 9, 5), ClusterDesign("A100", 14)),
    "iso-cost, conversation: AA over Baseline-H100": (ClusterDesign("A100", 10, 7), ClusterDesign("H100", 8)),
}
RESIDUE_S = 0.008
"""What is left to send of a cache when its prompt is done, layer by layer."""


def _times() -> Iterator[Ours]:
    for label, model in MODELS.items():
        for chip, on in CHIPS.items():
            ours: dict[str, Any] = {"tp": 8, "dtype": DTYPE, "engine": ENGINE, "on": on}
            for tokens in PROMPTS:
                found = gnomon.predict(model, phase="prefill", batch=1, tokens=tokens, **ours)
                yield f"{label}, {chip}: prompt of {tokens}", found.time_s.value / MILLI
            if (label, chip) == ("Llama-70B", "A100"):
                continue  # what the host's figures are fitted to
            for batch in BATCHES:
                found = gnomon.predict(model, phase="decode", batch=batch, context=CONTEXT, **ours)
                few = "one sequence" if batch == 1 else f"{batch} sequences"
                yield f"{label}, {chip}: step of {few}", found.time_s.value / MILLI


@cache
def _machine(chip: str) -> PaperReplica:
    return PaperReplica(
        model=MODELS["Llama-70B"], on=CHIPS[chip], engine=ENGINE, dtype=DTYPE, longest=LONGEST,
        settings={"max_model_len": LONGEST},
    )  # fmt: skip


def _load(rate: float) -> Requests:
    outputs = by_deciles(OUTPUT, REQUESTS, 2)
    inputs = by_deciles(INPUT, REQUESTS, 1).clip(1, LONGEST - outputs)
    return poisson(rate, inputs, outputs, REQUESTS)


@cache
def _alone() -> tuple[Floats, Floats, Floats]:
    """TTFT, TPOT and end-to-end times of each request alone on A100s."""
    run = _machine("A100").serve(_load(1e-3))
    return run.ttft_s, run.tpot_s, run.e2e_s


def _carries(design: ClusterDesign, rate: float) -> bool:
    """Whether all nine goals hold."""
    load, one = _load(rate), _machine(design.chip).simulated
    stages = [ServingStage(replicas=[one] * design.prompts, router=LeastRequestsRouter())]
    if design.tokens:
        sent = ServingStage(
            replicas=[one] * design.tokens, router=LeastRequestsRouter(), transfer_s=lambda tokens: RESIDUE_S,
            makes_first=False,
        )  # fmt: skip
        stages.append(sent)
    run = simulate_system(load, stages)
    ttft_s, e2e_s = run.first_token_s - load.arrival_s, run.finish_s - load.arrival_s
    tpot_s = (e2e_s - ttft_s) / (load.output_tokens - 1)
    found = zip((ttft_s, tpot_s, e2e_s), _alone(), (TTFT, TPOT, E2E), strict=True)
    return all((np.quantile(times_s / alone_s, SHARES) <= limits).all() for times_s, alone_s, limits in found)


def _most(design: ClusterDesign) -> float:
    """The highest rate that a design carries."""
    low, high = 0, len(RATES) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _carries(design, RATES[middle]) else (low, middle)
    return RATES[low]


def figures() -> Iterator[Ours]:
    for what, (ours, baseline) in DESIGNS.items():
        yield what, _most(ours) / _most(baseline)
    yield from _times()
