from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.search.test_bounds import Cost, limits, load
from tests.sim.plain_group import Group
from tests.sim.plain_pipeline import Stages, Timed

from gnomon.search import Candidate, PlanFamily, Score
from gnomon.search.judge import (
    LEAST_STEADY,
    SURE,
    Peaks,
    backlog_grows,
    clearance,
    is_settled,
    lost_already,
    overloaded,
    places_taken,
    same_schedule,
    statistic,
    steady_part,
)
from gnomon.sim.serving import simulate
from gnomon.spec import Goal, ServingLimits


@given(
    values=st.lists(st.floats(0, 10), min_size=1, max_size=60),
    part=st.floats(0.05, 1.0),
    name=st.sampled_from(["mean", "p50", "p90", "p95", "p99"]),
    limit=st.floats(0.1, 10),
)
def test_lost_already_is_never_wrong(values: list[float], part: float, name: str, limit: float) -> None:
    times = np.array(values)
    first = times[: max(1, int(part * times.size))]
    if lost_already(first, times.size, Goal("ttft", name, limit)):
        assert statistic(times, name) > limit * (1 - 1e-9)


def test_lost_already_gives_up_a_hopeless_run_early() -> None:
    assert lost_already(np.full(250, 9.0), 1000, Goal("ttft", "p90", 1.0))
    assert lost_already(np.full(250, 9.0), 1000, Goal("ttft", "mean", 1.0))
    assert not lost_already(np.full(90, 9.0), 1000, Goal("ttft", "p90", 1.0))


def test_unknown_times_have_no_say() -> None:
    assert statistic(np.array([np.nan, 2.0]), "p90") == 2.0
    assert np.isnan(statistic(np.array([np.nan]), "mean"))


@pytest.mark.parametrize("service_s", [0.1, 5.0, 50.0])
def test_a_queue_that_only_fills_does_not_grow(service_s: float) -> None:
    """Infinitely many servers: the number in the system settles after one service time."""
    arrival = np.cumsum(np.random.default_rng(0).exponential(0.1, 4000))
    assert not backlog_grows(arrival, arrival, arrival + service_s)


def test_one_server_beyond_its_limit_grows() -> None:
    arrival = np.cumsum(np.random.default_rng(0).exponential(1.0, 2000))
    slow, quick = np.arange(1, 2001) * 1.08, np.arange(1, 2001) * 0.6
    for finish, service_s, grows in ((slow, 1.08, True), (quick, 0.6, False)):
        ends = np.maximum(arrival + service_s, finish)
        assert backlog_grows(arrival, ends - service_s, ends) is grows


def test_a_batch_that_still_fills_does_not_grow() -> None:
    """A full batch serves slowly: what came in while it was empty says nothing of how long that takes."""
    arrival = np.arange(500) / 28
    service_s = np.linspace(2, 8, 500)
    assert not backlog_grows(arrival, arrival + 0.1, arrival + 0.1 + service_s)


def test_a_trace_with_a_late_peak_is_left_to_its_goals() -> None:
    arrival = np.concatenate([np.linspace(0, 900, 900), np.linspace(900, 1000, 1100)])
    assert not backlog_grows(arrival, arrival, arrival + np.linspace(1, 60, 2000))


def test_few_requests_prove_nothing() -> None:
    assert not backlog_grows(np.arange(20.0), np.arange(20.0), np.arange(20.0) + 100)


LIMITS = ServingLimits(kv_blocks=1000, max_sequences=64, max_step_tokens=2048, max_context=4096)
PEAKS = Peaks(places=40, step_tokens=1500, kv_blocks=500)


def test_limits_that_were_never_met_change_nothing() -> None:
    assert same_schedule(LIMITS, replace(LIMITS, max_sequences=256, max_step_tokens=8192, kv_blocks=900), PEAKS)
    assert not same_schedule(LIMITS, replace(LIMITS, max_sequences=40), PEAKS)
    assert not same_schedule(LIMITS, replace(LIMITS, max_step_tokens=1500), PEAKS)
    assert not same_schedule(LIMITS, replace(LIMITS, kv_blocks=400), PEAKS)
    assert not same_schedule(LIMITS, replace(LIMITS, lookahead=0), PEAKS)


def test_limits_that_are_equal_may_be_met() -> None:
    met = replace(PEAKS, step_tokens=2048)
    assert same_schedule(LIMITS, replace(LIMITS, max_sequences=256), met)
    assert not same_schedule(LIMITS, replace(LIMITS, max_step_tokens=8192), met)


def cost_of(stages: int, ranks: int) -> Any:
    if stages > 1:
        return Stages(*(Timed(Cost()) for _ in range(stages)))
    return Group(Cost(), ranks) if ranks > 1 else Cost()


@pytest.mark.heavy
@settings(max_examples=examples(150))
@given(
    rate=st.floats(0.5, 60),
    seed=st.integers(0, 10**6),
    limited=st.tuples(
        st.sampled_from([16, 32, 64, 256]), st.sampled_from([512, 2048, 8192]), st.sampled_from([600, 2000, 5000])
    ),
    other=st.tuples(
        st.sampled_from([16, 32, 64, 256]), st.sampled_from([512, 2048, 8192]), st.sampled_from([600, 2000, 5000])
    ),
    lookahead=st.integers(0, 1),
    shape=st.sampled_from([(1, 1), (2, 1), (4, 1), (1, 2), (1, 4)]),
)
@example(20.0, 1, (256, 512, 5000), (64, 512, 5000), 0, (4, 1))
@example(30.0, 0, (256, 512, 5000), (64, 512, 5000), 0, (2, 1))
def test_same_schedule_is_never_wrong(
    rate: float,
    seed: int,
    limited: tuple[int, int, int],
    other: tuple[int, int, int],
    lookahead: int,
    shape: tuple[int, int],
) -> None:
    """Of one scheduler, of one before a pipeline, and of data-parallel ranks."""
    requests = load(seed, rate, 150)
    ran, wanted = (
        replace(limits(*each), lookahead=lookahead, stages=shape[0], ranks=shape[1]) for each in (limited, other)
    )
    cost = cost_of(*shape)
    run = simulate(requests, cost, ran)
    longest = int((requests.input_tokens + requests.output_tokens).max())
    peaks = Peaks(
        places=places_taken(run.peak_sequences, run.finish_s),
        step_tokens=max(run.peak_sequences, run.peak_step_tokens),
        kv_blocks=run.peak_kv_blocks + run.peak_sequences - (-longest // 16),
    )
    if same_schedule(ran, wanted, peaks):
        np.testing.assert_allclose(simulate(requests, cost, wanted).finish_s, run.finish_s, rtol=1e-12)


def waits(seeds: int, count: int, busy: float) -> np.ndarray:
    """Times at one server of random arrivals and services, a row a seed, each begun in an empty system."""
    rng = np.random.default_rng(5)
    steps = np.cumsum(rng.exponential(busy, (seeds, count)) - rng.exponential(1.0, (seeds, count)), axis=1)
    return 0.5 + steps - np.minimum(np.minimum.accumulate(steps, axis=1), 0.0)


@pytest.mark.heavy
@pytest.mark.battery(12)
@pytest.mark.parametrize("name", ["mean", "p50", "p90", "p99"])
@pytest.mark.parametrize(("busy", "count"), [(0.7, 4000), (0.8, 10_000), (0.9, 40_000)])
def test_a_goal_at_the_true_figure_is_hardly_ever_called_sure(name: str, busy: float, count: int) -> None:
    """One run in twenty by the letter; queues remember for long, and tails are seen late, so it may be one in eight."""
    rows = waits(200, count, busy)[:, count // 10 :]
    true_s = statistic(rows.ravel(), name)
    sure = [clearance(row, Goal("ttft", name, true_s)) >= SURE for row in rows]
    assert np.mean(sure) <= 0.125
    missed = [clearance(row, Goal("ttft", name, 0.6 * true_s)) for row in rows]
    assert np.mean(np.array(missed) < 0) >= 0.9
    easy = [clearance(row, Goal("ttft", name, 2.5 * true_s)) >= SURE for row in rows]
    assert np.mean(easy) >= 0.85


@pytest.mark.parametrize("count", [2, 3, 10, LEAST_STEADY])
def test_few_requests_have_no_steady_part_and_are_never_sure(count: int) -> None:
    arrival = np.arange(count) * 1000.0
    assert not is_settled(arrival, arrival + 1.0)
    part = steady_part(arrival, arrival + 1.0)
    assert part.stop > part.start
    values = np.full(count - 1, 0.1)
    assert abs(clearance(values, Goal("ttft", "p90", 0.2))) < SURE


def test_a_plan_that_was_given_up_meets_nothing() -> None:
    """Whatever the part of it that ran looks like."""
    family = PlanFamily(chip="c", tp=1, dtype="bf16", dtype_rank=0, settings=(), usd_h=1.0, most=1, order=0)
    goal = Goal("ttft", "p99", 1.0)
    score = Score(
        plan=Candidate(family=family, replicas=1), rate_per_s=1.0, values_s={goal.name: 0.2}, grows=False,
        load_share=0.9, e2e_s=1.0, wh_per_mtok=1.0,
    )  # fmt: skip
    assert score.surely_meets((goal,))
    assert not replace(score, partial=True).meets((goal,))
    assert not replace(score, partial=True).surely_meets((goal,))


def test_a_burst_that_drains_is_no_overload() -> None:
    arrival = np.linspace(0.0, 1.0, 10)
    finish = arrival + 30.0
    assert not overloaded(arrival, arrival, finish, (10.0, 2.0), endless=False)
    assert overloaded(arrival, arrival, finish, (10.0, 2.0), endless=True)
    assert overloaded(arrival * 1000, arrival, arrival * 1000 + 1.0, (10.0, 2.0), endless=False)
