"""Replicas that are simulated together, arrival by arrival, and the rate at which one is saturated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.test_sim_serving import Case, cases
from tests.sim.costs import Cliffs, Smooth

from gnomon.search.judge import backlog_grows
from gnomon.sim.serving import ServingRun, saturation_rps, simulate
from gnomon.sim.serving.pool import least_requests, simulate_pool
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

LIMITS = ServingLimits(kv_blocks=4000, max_sequences=64, max_step_tokens=2048, max_context=8192, ingress_s=0.01)


def poisson(rate: float, count: int, seed: int = 0, longest: int = 800) -> Requests:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate, count))
    return Requests(arrival, rng.integers(1, longest, count), rng.integers(1, longest // 4, count))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), replicas=st.integers(1, 4))
def test_together_each_replica_does_what_it_does_alone(case: Case, replicas: int) -> None:
    """A router that looks at nothing gives every replica its share, and that share alone gives the same times."""
    load, cost, limits = case
    runs = simulate_pool(
        load, cost, limits, replicas=replicas, router=lambda request, unfinished: request % len(unfinished)
    )
    assert sum(len(run.requests) for run in runs) == len(load)
    for at, run in enumerate(runs):
        np.testing.assert_array_equal(run.requests.arrival_s, load.arrival_s[at::replicas])
        alone = simulate(run.requests, cost, limits)
        np.testing.assert_allclose(run.first_token_s, alone.first_token_s, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(run.finish_s, alone.finish_s, rtol=1e-9, atol=1e-9)
        assert (run.steps, run.preemptions) == (alone.steps, alone.preemptions)


class NoLaunch(Smooth):
    """No step is still being launched when the one before it ends, which would hold its tokens back."""

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        return 0.0


@pytest.mark.parametrize("seed", range(4))
def test_the_router_sees_who_is_unfinished(seed: int) -> None:
    """What it is told is what the times of the finished runs say."""
    load = poisson(40, 600, seed)
    told: list[tuple[int, ...]] = []

    def router(request: int, unfinished: object) -> int:
        told.append(tuple(unfinished))  # type: ignore[arg-type]
        return least_requests(request, told[-1])

    runs = simulate_pool(load, NoLaunch(), LIMITS, replicas=3, router=router)
    for request, arrival in enumerate(load.arrival_s):
        true = [int(((run.requests.arrival_s < arrival) & (run.finish_s > arrival)).sum()) for run in runs]
        assert list(told[request]) == true


def test_least_requests_by_turns_among_equals() -> None:
    assert [least_requests(request, [0, 0, 0]) for request in range(4)] == [0, 1, 2, 0]
    assert least_requests(0, [2, 1, 1]) == 1
    assert least_requests(2, [1, 1, 2]) == 0


def ttft_p99(runs: list[ServingRun]) -> float:
    return float(np.quantile(np.concatenate([run.ttft_s for run in runs]), 0.99))


def test_a_router_that_looks_is_better_than_chance_under_load() -> None:
    load = poisson(26, 6000, longest=1600)
    random = np.random.default_rng(5).integers(0, 4, len(load))
    by_chance = simulate_pool(load, Smooth(), LIMITS, replicas=4, router=lambda request, _: int(random[request]))
    assert ttft_p99(simulate_pool(load, Smooth(), LIMITS, replicas=4)) < 0.8 * ttft_p99(by_chance)


@pytest.mark.parametrize("cost", [Smooth(), Cliffs()])
@pytest.mark.parametrize(("prompt", "output"), [(1000, 200), (100, 20), (50, 400), (2000, 1)])
def test_below_saturation_a_queue_settles_and_above_it_grows(cost: Smooth | Cliffs, prompt: int, output: int) -> None:
    def load(rate: float, count: int) -> Requests:
        arrival = np.cumsum(np.random.default_rng(2).exponential(1 / rate, count))
        return Requests(arrival, np.full(count, prompt), np.full(count, output))

    most = saturation_rps(load(1.0, 100), cost, LIMITS)
    for share, grows in ((0.9, False), (1.1, True)):
        run = simulate(load(share * most, 12_000), cost, LIMITS)
        assert backlog_grows(run.requests.arrival_s, run.first_token_s, run.finish_s) is grows, share
