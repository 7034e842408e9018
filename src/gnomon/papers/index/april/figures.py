"""APRIL (Zhou et al. 2025): rollouts that end when enough answers are done, and carry the others over."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.papers.base import Ours
from gnomon.sim.serving.rollouts import Groups, Round, rollout
from gnomon.spec import Strategy

PROMPT, SAMPLES, LONGEST, MEAN = 200, 8, 16384, 6000.0
"""Lengths are lognormal with a standard deviation as large as their mean."""
WANTED, STARTED, ENGINES, GPUS = 32, 64, 4, 2
SETTLED, ROUNDS = 8, 24
"""Rounds until the mix of carried and new groups is steady, and rounds that are counted."""


def _groups(rng: np.random.Generator, count: int) -> Groups:
    variance = np.log(2.0)
    drawn = rng.lognormal(np.log(MEAN) - variance / 2, np.sqrt(variance), (count, SAMPLES))
    return Groups.of(np.clip(np.rint(drawn), 1, LONGEST).astype(np.int64), PROMPT)


def _rounds(started: int) -> list[Round]:
    """One round after the other, with new groups beside those that were carried over."""
    pool = parse_pool(f"H100-SXM-80GB:{GPUS}")
    engine, deployment = deploy(load_model("qwen3-4b"), pool, strategy=Strategy(tp=GPUS), engine="sglang")
    cost, rng, found = engine.step_cost(deployment), np.random.default_rng(0), []
    groups = _groups(rng, started)
    for _ in range(SETTLED + ROUNDS):
        found.append(rollout(cost, groups, replicas=ENGINES, enough=WANTED))
        groups = found[-1].carried + _groups(rng, started - len(found[-1].carried.lengths))
    return found[SETTLED:]


def _rate(rounds: list[Round]) -> float:
    return sum(one.tokens for one in rounds) / sum(one.seconds for one in rounds)


def figures() -> Iterator[Ours]:
    waiting, partial = _rounds(WANTED), _rounds(STARTED)
    yield "rollout throughput, DAPO-Math-17k, over waiting for all", _rate(partial) / _rate(waiting)
    stale = sum(one.stale for one in partial) / sum(int(one.finished.made.sum()) for one in partial)
    yield "share of tokens that an earlier policy made", 100 * stale
