"""Data-parallel ranks under load: the jumping loop gives what the plain one gives, and nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.sim.costs import Cliffs, Dyadic, Smooth
from tests.sim.plain_group import Group, PlainGroup

from gnomon.sim.serving import Recorder, RunLog, simulate
from gnomon.sim.serving.balancers import FewestTokens, LeastScore
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.sim.serving.gaps import token_gaps
from gnomon.sim.serving.held import simulate_on
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

BALANCERS: dict[str, Any] = {
    "round-robin": None,
    "least-score": lambda ranks: LeastScore(ranks, waiting_weight=4, interval_s=0.1),
    "fewest-tokens": lambda ranks: FewestTokens(ranks, places=5),
}


def limits(**changes: Any) -> ServingLimits:
    base: dict[str, Any] = {"kv_blocks": 30, "max_sequences": 5, "max_step_tokens": 64, "max_context": 512}
    return ServingLimits(**{**base, "lookahead": 1, "ranks": 3, **changes})


def load(seed: int, count: int, gap_s: float) -> Requests:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(gap_s, count)) * (rng.random() > 0.2)
    return Requests(arrival, rng.integers(1, 200, count), rng.integers(1, 120, count))


@pytest.mark.battery(16)
@pytest.mark.parametrize("balancer", BALANCERS)
@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("seed", range(40))
def test_the_quick_loop_is_the_plain_one(seed: int, lookahead: int, balancer: str) -> None:
    rng = np.random.default_rng(100 + seed)
    within = limits(
        lookahead=lookahead,
        ranks=int(rng.integers(2, 5)),
        kv_blocks=int(rng.choice([22, 40, 4000])),
        balancer=BALANCERS[balancer],
        cache=(CountedBlocks, HashedBlocks)[seed % 2],
        idle_start_s=0.002,
        egress_s=0.001,
        ingress_s=0.003,
    )
    given = load(seed, 60, float(rng.choice([0.002, 0.05, 0.6])))
    cost = Group((Cliffs(), Dyadic(), Smooth())[seed % 3], within.ranks)
    log = RunLog()
    run, plain = simulate(given, cost, within, log=log), PlainGroup(given, cost, within).run()  # type: ignore[arg-type]
    np.testing.assert_allclose(run.first_token_s, plain.of("first_s"), rtol=1e-9)
    np.testing.assert_allclose(run.finish_s, plain.of("finish_s"), rtol=1e-9)
    np.testing.assert_allclose(run.scheduled_s, plain.of("scheduled_s"), rtol=1e-9)
    assert run.busy_s == pytest.approx(plain.busy_s, rel=1e-9)
    assert run.steps == plain.steps
    assert run.preemptions == sum(rank.preemptions for rank in plain.ranks)
    assert run.peak_kv_blocks == max(rank.peak_blocks for rank in plain.ranks)
    gaps = [np.diff(rank.all[i].tokens_s) for rank, own in zip(plain.ranks, plain.given, strict=True) for i in own]
    found = token_gaps(log)
    assert found.count == sum(map(len, gaps)) == given.output_tokens.sum() - 60
    assert found.mean == pytest.approx(np.concatenate(gaps).mean(), rel=1e-9)


@pytest.mark.parametrize("balancer", BALANCERS)
def test_tokens_are_conserved(balancer: str) -> None:
    given, within = load(5, 300, 0.01), limits(kv_blocks=4000, balancer=BALANCERS[balancer])
    run = simulate(given, Group(Cliffs(), 3), within)  # type: ignore[arg-type]
    assert run.preemptions == 0
    assert run.totals.prefill_tokens == given.input_tokens.sum()
    assert run.totals.decodes == (given.output_tokens - 1).sum()
    assert (run.finish_s >= run.first_token_s).all() and (run.first_token_s > given.arrival_s).all()


def test_steps_one_by_one_are_those_made_at_once() -> None:
    given, within = load(1, 80, 0.02), limits(balancer=BALANCERS["least-score"])
    recorder = Recorder()
    walked = simulate(given, Group(Cliffs(), 3), within, record=recorder)  # type: ignore[arg-type]
    jumped = simulate(given, Group(Cliffs(), 3), within)  # type: ignore[arg-type]
    np.testing.assert_allclose(walked.finish_s, jumped.finish_s, rtol=1e-9)
    computed = np.zeros(80, int)
    for step in recorder.steps:
        for request, tokens in step.tokens:
            computed[request] += tokens
    preempted = {one for step in recorder.steps for one in step.preempted}
    for request in set(range(80)) - preempted:
        assert computed[request] == given.input_tokens[request] + given.output_tokens[request] - 1


@pytest.mark.parametrize("balancer", ["round-robin", "least-score"])
def test_a_run_goes_on_from_a_shorter_one(balancer: str) -> None:
    given, within = load(2, 90, 0.05), limits(balancer=BALANCERS[balancer])
    cost: Any = Group(Cliffs(), 3)
    part = given.take(np.arange(50))
    held = simulate_on(None, part, cost, within, {})
    longer = simulate_on(held, given, cost, within, {})
    assert longer.run.finish_s.tolist() == simulate(given, cost, within).finish_s.tolist()


def test_ranks_that_get_equal_work_are_one_rank_with_all_of_it() -> None:
    one = load(3, 20, 0.05)
    three = Requests(*(np.repeat(column, 3) for column in (one.arrival_s, one.input_tokens, one.output_tokens)))
    run = simulate(three, Group(Cliffs(), 3), limits())  # type: ignore[arg-type]
    assert run.finish_s[0::3].tolist() == run.finish_s[1::3].tolist() == run.finish_s[2::3].tolist()


def test_an_idle_rank_waits_for_the_busy_one() -> None:
    # One long prompt on one rank; the decode of the other takes as long as its step.
    given = Requests(np.array([0.0, 0.5]), np.array([10, 400]), np.array([400, 2]))
    alone = simulate(given.take(np.array([0])), Group(Smooth(), 3), limits(kv_blocks=4000))  # type: ignore[arg-type]
    both = simulate(given, Group(Smooth(), 3), limits(kv_blocks=4000))  # type: ignore[arg-type]
    # Seven steps of 64 tokens or fewer, of 0.2 ms or more beyond a decode's.
    assert both.finish_s[0] > alone.finish_s[0] + 7 * 2e-4


def test_the_longest_prompts_go_to_the_rank_with_fewest_tokens() -> None:
    from gnomon.sim.serving.balancers import Arrived, RankLoad

    loads = [RankLoad(0, 1, 100), RankLoad(0, 1, 10), RankLoad(0, 0, 0)]
    prompts = [5, 50, 20, 7]
    # (2 + 4) / 3 = 2 for each: 50 to the empty one, 20 to the next, which is then full, 7 and 5 to what is left.
    found = FewestTokens(3, places=4).assign([Arrived(0.0, one) for one in prompts], loads, 0.0)
    assert found == [0, 2, 1, 2]
    assert FewestTokens(3, places=1).assign([Arrived(0.0, 1)], [RankLoad(0, 1, 1)] * 3, 0.0) == []
