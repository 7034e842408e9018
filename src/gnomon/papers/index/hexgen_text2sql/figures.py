"""HexGen-Text2SQL (Peng et al. 2025): calls of Text-to-SQL queries on unlike replicas, by work and by deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import inf

import numpy as np

from gnomon.papers.base import Ours
from gnomon.papers.loads import PaperReplica
from gnomon.sim.serving.routers import Router
from gnomon.sim.serving.routers.plain import RoundRobinRouter
from gnomon.sim.serving.routers.work import LeastWorkRouter
from gnomon.sim.serving.system import ServingStage, simulate_system
from gnomon.spec import Requests
from gnomon.spec.workload import Floats

MODEL, ENGINE, GPUS = "llama-3.1-70b", "vllm@0.5.4", 4
CHIPS = {"A100": "A100-SXM-80GB", "H100": "H100-SXM-80GB", "A6000": "RTX-A6000", "L40": "L40"}
FLEET = ("A100", "A100", "A6000", "L40")
STAGES = {
    "retrieve": (308, 5),
    "extract keywords": (667, 45),
    "generate candidate": (11748, 678),
    "revise": (5963, 79),
    "generate unit test": (1109, 103),
    "unit tester": (275, 4),
    "evaluate": (961, 22),
}
"""Tokens of a stage's prompts and answers."""
PRINTED = ("extract keywords", "generate candidate", "revise", "generate unit test", "evaluate")
CHAIN = ("retrieve", "extract keywords", "generate candidate", "generate candidate", "revise", "revise",
         "generate unit test", "unit tester", "evaluate")  # fmt: skip
CV, QUERIES, LONGEST = 0.5, 200, 16384
KEPT, MULTIPLE = 0.95, 5.0
RATE = 0.1
"""Queries a second at which deadlines are compared."""
RATES = tuple(0.02 * 1.1**i for i in range(40))


@cache
def _replica(chip: str, *techniques: str) -> PaperReplica:
    """Weighed by how soon it answers the longest stage."""
    alone = _alone_s("A100", "generate candidate") / _alone_s(chip, "generate candidate") if techniques else 1.0
    return PaperReplica(
        model=MODEL, on=f"{CHIPS[chip]}:{GPUS}", engine=ENGINE, techniques=techniques, weight=alone, longest=LONGEST,
        settings={"max_model_len": LONGEST},
    )  # fmt: skip


@cache
def _alone_s(chip: str, stage: str) -> float:
    if not _replica(chip).fits:
        return inf
    prompt, answer = (np.array([size]) for size in STAGES[stage])
    return float(_replica(chip).serve(Requests(np.zeros(1), prompt, answer)).e2e_s[0])


def _queries(rate: float) -> Requests:
    """Chains of calls: all first calls, then all second ones, so that arrivals rise."""
    random = np.random.Generator(np.random.PCG64(1))
    begins = np.cumsum(random.exponential(1 / rate, QUERIES))
    sigma = np.sqrt(np.log1p(CV**2))
    sizes = np.array([STAGES[stage] for stage in CHAIN])
    drawn = sizes[:, None, :] * np.exp(sigma * random.standard_normal((len(CHAIN), QUERIES, 2)) - sigma**2 / 2)
    tokens = np.rint(drawn).astype(np.int64).clip(1, (LONGEST - 2048, 2048)).reshape(-1, 2)
    follows = np.concatenate([np.full(QUERIES, -1), np.arange(QUERIES * (len(CHAIN) - 1))])
    arrivals = np.concatenate([begins, np.repeat(begins[-1], follows.size - QUERIES)])
    return Requests(arrivals, tokens[:, 0], tokens[:, 1], follows=follows, think_s=np.zeros(follows.size))


def _times_s(requests: Requests, router: Callable[[], Router], techniques: Sequence[str]) -> Floats:
    """From a query's arrival to its last answer."""
    replicas = [_replica(chip, *techniques).simulated for chip in FLEET]
    run = simulate_system(requests, [ServingStage(replicas=replicas, router=router())])
    last = run.finish_s.reshape(len(CHAIN), QUERIES)[-1]
    found: Floats = last - requests.arrival_s[:QUERIES]
    return found


def _plain(rate: float) -> float:
    """The tightest multiple of a query's time alone that enough queries keep, under vLLM."""
    return _multiple(_times_s(_queries(rate), RoundRobinRouter, ()))


def _ordered(rate: float) -> float:
    """The same with both of the paper's schedulers."""
    techniques = ("deadline-first",)
    requests = _replica("A100", *techniques).sent(_queries(rate))
    return _multiple(_times_s(requests, lambda: LeastWorkRouter(answer=10.0), techniques))


def _multiple(times_s: Floats) -> float:
    alone = sum(_alone_s("A100", stage) for stage in CHAIN)
    return float(np.quantile(times_s, KEPT)) / alone


def _most(multiple: Callable[[float], float]) -> float:
    """The highest rate at which enough queries keep their deadlines."""
    low, high = 0, len(RATES) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if multiple(RATES[middle]) <= MULTIPLE else (low, middle)
    return RATES[low]


def figures() -> Iterator[Ours]:
    fits = all(_replica(chip).fits for chip in FLEET)
    yield "latency deadline against vLLM", _plain(RATE) / _ordered(RATE) if fits else inf
    yield "throughput against vLLM", _most(_ordered) / _most(_plain) if fits else inf
    for chip in CHIPS:
        for stage in PRINTED:
            yield f"{chip}: {stage}", _alone_s(chip, stage)
