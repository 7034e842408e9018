"""APEX (Lin et al. 2024): times of three traces under vLLM, by how eight GPUs are cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from gnomon.papers.base import Ours
from gnomon.papers.loads import PaperReplica, poisson
from gnomon.spec import Requests

MODEL, ENGINE, RATE, REQUESTS = "llama-3.1-70b", "vllm@0.5.4", 0.5, 150
LONGEST = 8192
PLANS = {"TP 8": (8, 1), "2 x TP 4": (4, 2), "4 x TP 2": (2, 4)}
"""GPUs of a replica, and replicas."""
LOADS = {
    "lmsys": (73, {"TP 8": 79, "2 x TP 4": 48, "4 x TP 2": 47}),
    "creation": (308, dict.fromkeys(PLANS, 1136)),
    "summarization": (3500, {"TP 8": 168, "2 x TP 4": 198, "4 x TP 2": 197}),
}
"""Tokens of prompts, and of answers by plan."""
MILLI = 1e-3


def _times_s(replica: PaperReplica, load: Requests) -> tuple[float, float]:
    """Mean TTFT and TPOT; without end where the replica does not fit."""
    if not replica.fits:
        return inf, inf
    run = replica.serve(load)
    return float(run.ttft_s.mean()), float(run.tpot_s.mean())


def figures() -> Iterator[Ours]:
    replicas = {
        plan: PaperReplica(
            model=MODEL, on=f"H100-SXM-80GB:{tp}", engine=ENGINE, longest=LONGEST, settings={"max_model_len": LONGEST}
        )
        for plan, (tp, _) in PLANS.items()
    }
    for load, (prompt, answers) in LOADS.items():
        order = []
        for plan, (_, count) in PLANS.items():
            ttft_s, tpot_s = _times_s(replicas[plan], poisson(RATE / count, prompt, answers[plan], REQUESTS))
            order.append(tpot_s)
            yield f"{load}, {plan}: TPOT", tpot_s / MILLI
            yield f"{load}, {plan}: TTFT", ttft_s / MILLI
        rising = all(fast < slow for fast, slow in pairwise(order))
        yield f"{load}: plans by TPOT in the measured order (1 for yes)", float(rising)
