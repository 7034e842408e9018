"""Replicas that are simulated together, arrival by arrival, and the rate at which one is saturated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.test_sim_serving import Case, cases
from tests.sim.costs import Cliffs, Smooth

from gnomon.cost.step import StepCost
from gnomon.search.judge import backlog_grows
from gnomon.sim.serving import ServingRun, saturation_rps, simulate
from gnomon.sim.serving.closed import simulate_closed
from gnomon.sim.serving.routers import ReplicaLoad, RoutedRequest, Router, router
from gnomon.sim.serving.routers.least import LeastRequestsRouter
from gnomon.sim.serving.system import ReplicaModel, ServingStage, simulate_system
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

LIMITS = ServingLimits(kv_blocks=4000, max_sequences=64, max_step_tokens=2048, max_context=8192, ingress_s=0.01)


def simulate_pool(
    requests: Requests, cost: StepCost, limits: ServingLimits, replicas: int, by: Router | None = None
) -> list[ServingRun]:
    """The runs of equal replicas behind a router, by default least-requests."""
    model = ReplicaModel(cost=cost, limits=limits)
    stage = ServingStage(replicas=(model,) * replicas, router=by or router("least-requests"))
    return list(simulate_system(requests, (stage,)).stages[0])


def told_loads(*unfinished: int) -> list[ReplicaLoad]:
    loads = [ReplicaLoad() for _ in unfinished]
    for load, count in zip(loads, unfinished, strict=True):
        load.unfinished = count
    return loads


def poisson(rate: float, count: int, seed: int = 0, longest: int = 800) -> Requests:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate, count))
    return Requests(arrival, rng.integers(1, longest, count), rng.integers(1, longest // 4, count))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), replicas=st.integers(1, 4))
def test_together_each_replica_does_what_it_does_alone(case: Case, replicas: int) -> None:
    """A router that looks at nothing gives every replica its share, and that share alone gives the same times."""
    load, cost, limits = case
    runs = simulate_pool(load, cost, limits, replicas, router("round-robin"))
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
    told: list[list[int]] = []

    class Watched(LeastRequestsRouter):
        def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
            told.append([each.unfinished for each in loads])
            return super().choose(request, loads)

    runs = simulate_pool(load, NoLaunch(), LIMITS, 3, Watched())
    for request, arrival in enumerate(load.arrival_s):
        true = [int(((run.requests.arrival_s < arrival) & (run.finish_s > arrival)).sum()) for run in runs]
        assert told[request] == true


def test_least_requests_by_turns_among_equals() -> None:
    asked = RoutedRequest(0, 10, [])
    by_turns = LeastRequestsRouter()
    assert [by_turns.choose(asked, told_loads(0, 0, 0)) for _ in range(4)] == [0, 1, 2, 0]
    assert LeastRequestsRouter().choose(asked, told_loads(2, 1, 1)) == 1
    assert LeastRequestsRouter().choose(asked, told_loads(1, 1, 2)) == 0


def ttft_p99(runs: list[ServingRun]) -> float:
    return float(np.quantile(np.concatenate([run.ttft_s for run in runs]), 0.99))


def test_a_router_that_looks_is_better_than_chance_under_load() -> None:
    load = poisson(26, 6000, longest=1600)
    by_chance = simulate_pool(load, Smooth(), LIMITS, 4, router("random", 5))
    assert ttft_p99(simulate_pool(load, Smooth(), LIMITS, 4)) < 0.8 * ttft_p99(by_chance)


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


FRONT = replace(LIMITS, request_s=0.02, egress_s=0.01, egress_sequence_s=1e-3, idle_launch=1.5)


@pytest.mark.parametrize("tokenize_s", [0.0, 1e-5, 1e-3])
def test_a_closed_loop_is_the_run_of_the_arrivals_that_came_of_it(tokenize_s: float) -> None:
    rng, limits = np.random.default_rng(3), replace(FRONT, tokenize_s=tokenize_s)
    asked = Requests(np.zeros(120), rng.integers(1, 300, 120), rng.integers(1, 40, 120))
    loop = simulate_closed(asked, 24, Smooth(), limits)
    again = simulate(loop.requests, Smooth(), limits)
    np.testing.assert_allclose(again.finish_s, loop.finish_s, rtol=1e-12)
    np.testing.assert_allclose(again.first_token_s, loop.first_token_s, rtol=1e-12)
    ends = np.sort(loop.finish_s)
    np.testing.assert_allclose(loop.requests.arrival_s[24:], ends[: 120 - 24], rtol=1e-12)


def test_one_replica_of_a_pool_is_a_replica_by_itself() -> None:
    rng = np.random.default_rng(4)
    asked = Requests(np.cumsum(rng.exponential(0.01, 200)), rng.integers(1, 300, 200), rng.integers(1, 40, 200))
    limits = replace(FRONT, output_s=2e-4)
    (run,) = simulate_pool(asked, Smooth(), limits, 1)
    alone = simulate(asked, Smooth(), limits)
    np.testing.assert_allclose(run.first_token_s, alone.first_token_s, rtol=1e-12)
    np.testing.assert_allclose(run.finish_s, alone.finish_s, rtol=1e-12)


def test_a_front_end_bounds_the_rate_and_serializes_a_burst() -> None:
    short = Requests(np.zeros(300), np.full(300, 8), np.full(300, 1))
    run = simulate(short, Smooth(), FRONT)
    assert run.scheduled_s.max() >= 300 * FRONT.request_s
    assert saturation_rps(short, Smooth(), FRONT) == pytest.approx(1 / FRONT.request_s, rel=0.02)
    assert saturation_rps(short, Smooth(), LIMITS) > 2 / FRONT.request_s


def test_prompts_of_text_are_tokenized_one_after_the_other_and_outputs_do_not_wait() -> None:
    limits = replace(LIMITS, tokenize_s=1e-3)
    asked = Requests(np.array([0.0, 0.0, 0.0]), np.array([100, 200, 50]), np.array([1, 1, 1]))
    run = simulate(asked, Smooth(), limits)
    assert (run.scheduled_s >= np.array([0.1, 0.3, 0.35])).all()
    early, late = (Requests(np.array([0.0, 0.01]), np.array([1, size]), np.array([5, 1])) for size in (1, 10_000))
    long = replace(limits, request_s=1e-3, max_context=20_000, max_step_tokens=20_000, kv_blocks=4000)
    first, second = (simulate(one, Smooth(), long) for one in (early, late))
    assert second.first_token_s[0] == first.first_token_s[0]
    assert second.scheduled_s[1] >= 10.0
