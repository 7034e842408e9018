"""No simulated run beats the bounds, and they are near enough to be of use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.costs import Unmetered

from gnomon.cost.step import Curve
from gnomon.search.bounds import Demand, KnownSteps, bounds, most_requests_per_s
from gnomon.search.judge import backlog_grows
from gnomon.sim.serving import simulate
from gnomon.spec import Goal, Requests, ServingLimits

GOALS = tuple(Goal(m, s, 1.0) for m in ("ttft", "tpot", "e2e") for s in ("mean", "p50", "p90", "p99"))


class Cost(Unmetered):
    """Weights are read once a step, or computing takes longer; padding to eights; one prompt token costs `prompt_s`."""

    def __init__(self, weights_s: float = 7e-3, prompt_s: float = 2e-5, cache_s: float = 4e-8) -> None:
        self.weights_s, self.prompt_s, self.cache_s = weights_s, prompt_s, cache_s

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        context = np.array([0, 4096])
        padded = -(-sequences // 8) * 8
        return Curve(context, self._body(padded) + self.cache_s * sequences * context)

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        tokens = sum(new for new, _ in chunks)
        pairs = sum(new * cached + new * new / 2 for new, cached in chunks)
        return self._body(decodes + tokens) + self.cache_s * decode_context + 1e-9 * pairs

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return (4e-3 if tokens > 256 else 1e-3) + 1e-5 * sequences

    def _body(self, tokens: int) -> float:
        return max(self.weights_s, self.prompt_s * tokens) + 1e-3


def load(seed: int, rate_per_s: float, count: int, spread: float = 0.7) -> Requests:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate_per_s, count))
    prompt = np.clip(rng.lognormal(6.0, spread, count), 1, 4000).astype(np.int64)
    output = np.clip(rng.lognormal(4.5, spread, count), 1, 1000).astype(np.int64)
    return Requests(arrival, prompt, output)


def limits(sequences: int, tokens: int, blocks: int = 20_000) -> ServingLimits:
    return ServingLimits(
        kv_blocks=blocks,
        max_sequences=sequences,
        max_step_tokens=tokens,
        max_context=8192,
        ingress_s=1e-3,
        egress_s=5e-4,
        idle_start_s=2e-3,
    )


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    rate=st.floats(0.2, 60),
    sequences=st.sampled_from([16, 64, 256]),
    tokens=st.sampled_from([512, 2048, 8192]),
    blocks=st.sampled_from([400, 2_000, 20_000]),
)
def test_no_run_is_faster(seed: int, rate: float, sequences: int, tokens: int, blocks: int) -> None:
    requests, within = load(seed, rate, 300), limits(sequences, tokens, blocks)
    run = simulate(requests, Cost(), within)
    known = bounds(KnownSteps(Cost(), Demand.of(requests)), within, GOALS)
    for goal in GOALS:
        assert known.floors_s[goal.name] <= run.statistics(goal.metric)[goal.statistic] * (1 + 1e-9), goal.name
    assert known.e2e_s <= run.statistics("e2e")["mean"]


@pytest.mark.heavy
@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    sequences=st.sampled_from([16, 64, 256]),
    tokens=st.sampled_from([512, 2048, 8192]),
    blocks=st.sampled_from([2_000, 20_000]),
)
def test_no_replica_serves_more(seed: int, sequences: int, tokens: int, blocks: int) -> None:
    """All requests at once: the replica is never idle and always has all it can take."""
    requests, within = load(seed, 1e6, 3000), limits(sequences, tokens, blocks)
    run = simulate(requests, Cost(), within)
    most = most_requests_per_s(KnownSteps(Cost(), Demand.of(requests)), within)
    served = len(requests) / run.makespan_s
    assert served <= most
    assert most <= 2.5 * served


@pytest.mark.parametrize(("share", "grows"), [(0.5, False), (0.8, False), (1.15, True), (1.5, True)])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sequences", [64, 1024])
def test_a_growing_queue_is_seen_though_the_run_ends(share: float, grows: bool, seed: int, sequences: int) -> None:
    within = limits(sequences, 2048, 50_000)
    full = load(seed, 1e6, 6000, spread=0.3)
    served = len(full) / simulate(full, Cost(), within).makespan_s
    requests = load(seed, share * served, 4000, spread=0.3)
    run = simulate(requests, Cost(), within)
    assert backlog_grows(requests.arrival_s, run.first_token_s, run.finish_s) is grows


def test_one_token_answers_have_no_time_per_token() -> None:
    requests = Requests(np.arange(4.0), np.full(4, 100), np.ones(4, dtype=np.int64))
    known = bounds(KnownSteps(Cost(), Demand.of(requests)), limits(16, 512), GOALS)
    assert known.floors_s["tpot_p90"] == 0.0
    assert known.rate_per_s > 0
