"""How sure goals are met by whole traces behind a random router, and by unlike replicas together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.search.test_judge import waits

from gnomon.search.judge import SURE, clearance, error_along, statistic
from gnomon.search.overall import KindTimes, error_between, mixed_mean, mixed_quantile, overall_clearance
from gnomon.spec import Goal
from gnomon.spec.workload import QUANTILES, STATISTICS

ROWS = 6000


def bursty(ratio: float, span: int) -> tuple[np.ndarray, np.ndarray]:
    """Arrivals and work of a trace: of every three stretches of `span` requests the first comes `ratio` times as fast,
    all in all one request a second."""
    rng = np.random.default_rng(1)
    rate = np.where((np.arange(ROWS) // span) % 3 == 0, ratio, 1.0)
    arrival = np.cumsum(rng.exponential(1.0, ROWS) / rate)
    return arrival * ROWS / arrival[-1], rng.exponential(1.0, ROWS)


def times_at_servers(arrival: np.ndarray, work: np.ndarray, lots: np.ndarray) -> np.ndarray:
    """The time of each request at the server that it was sent to."""
    found = np.empty(arrival.size)
    for server in range(int(lots.max()) + 1):
        at = np.flatnonzero(lots == server)
        done = np.cumsum(work[at])
        found[at] = np.maximum.accumulate(arrival[at] - (done - work[at])) + done - arrival[at]
    return found


def drawn(trace: tuple[np.ndarray, np.ndarray], busy: float, servers: int, draws: int, seed: int) -> KindTimes:
    """So many draws of the router, each of all servers, in order of arrival."""
    rng = np.random.default_rng(seed)
    arrival, work = trace
    each = [times_at_servers(arrival, work * busy * servers, rng.integers(0, servers, ROWS)) for _ in range(draws)]
    group = np.tile(np.arange(draws), ROWS)
    return KindTimes(values_s=np.stack(each, axis=1).ravel(), group=group)


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", ["mean", "p90", "p99"])
@pytest.mark.parametrize(("ratio", "span", "busy"), [(1.5, 400, 0.7), (3.0, 1000, 0.45)])
def test_a_goal_at_the_true_figure_of_a_trace_is_hardly_ever_called_sure(
    name: str, ratio: float, span: int, busy: float
) -> None:
    """As rarely as on queues whose load goes on; what is far below is sure however much the trace itself wanders."""
    trace = bursty(ratio, span)
    runs = [drawn(trace, busy, 3, 4, seed) for seed in range(100)]
    true_s = statistic(np.concatenate([run.values_s for run in runs]), name)
    sure = [overall_clearance([run], Goal("ttft", name, true_s)) >= SURE for run in runs]
    assert np.mean(sure) <= 0.125
    if name != "p99":
        easy = [overall_clearance([run], Goal("ttft", name, 1.5 * true_s)) >= SURE for run in runs]
        assert np.mean(easy) >= 0.85
    missed = [overall_clearance([run], Goal("ttft", name, 0.6 * true_s)) for run in runs]
    assert np.mean(np.array(missed) < 0) >= 0.9


def test_the_ups_and_downs_of_a_trace_are_no_doubt() -> None:
    """Twenty times as long in its busy third, and the same in every draw."""
    level = np.where(np.arange(ROWS) % 3000 < 1000, 20.0, 1.0)
    values = level * np.random.default_rng(0).uniform(0.99, 1.01, ROWS)
    goal = Goal("ttft", "mean", 1.1 * float(values.mean()))
    assert abs(clearance(values, goal)) < SURE
    assert overall_clearance([KindTimes(values_s=values, group=np.arange(ROWS) % 4)], goal) > 10


def test_the_error_between_draws_of_independent_requests_is_that_of_the_mean() -> None:
    rng = np.random.default_rng(0)
    ratios = [error_between(values, np.arange(4000) % 8) * math.sqrt(4000) for values in rng.normal(size=(200, 4000))]
    assert np.mean(ratios) == pytest.approx(1.1, abs=0.1), "the widest of three, and Student's t"


def test_few_draws_of_one_burst_leave_more_doubt_than_many_sections() -> None:
    """Where all that differs lies in one section, two draws are one degree of freedom."""
    group = np.arange(ROWS) % 2
    burst = np.where((np.arange(ROWS) < 200) & (group == 1), 1.0, 0.0)
    everywhere = np.where((np.arange(ROWS) % 30 == 1) & (group == 1), 1.0, 0.0)
    assert burst.sum() < everywhere.sum()
    assert error_between(burst, group) / burst.sum() > 2 * error_between(everywhere, group) / everywhere.sum()


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", ["mean", "p50", "p90", "p99"])
def test_a_goal_at_the_true_figure_of_a_mixture_is_hardly_ever_called_sure(name: str) -> None:
    quick, slow = waits(100, 6000, 0.7)[:, 600:], 2.0 * waits(200, 6000, 0.8)[100:, 600:]
    shares = np.array([0.7, 0.3])
    each = [quick.ravel(), slow.ravel()]
    true_s = mixed_mean(each, shares) if name == "mean" else mixed_quantile(each, shares, QUANTILES[name])
    kinds = [
        [KindTimes(values_s=a, share=0.7), KindTimes(values_s=b, share=0.3)] for a, b in zip(quick, slow, strict=True)
    ]
    assert np.mean([overall_clearance(pair, Goal("ttft", name, true_s)) >= SURE for pair in kinds]) <= 0.125
    assert np.mean([overall_clearance(pair, Goal("ttft", name, 0.5 * true_s)) < 0 for pair in kinds]) >= 0.95
    assert np.mean([overall_clearance(pair, Goal("ttft", name, 3 * true_s)) >= SURE for pair in kinds]) >= 0.7


@pytest.mark.parametrize("name", STATISTICS)
def test_one_kind_is_its_own_mixture(name: str) -> None:
    values = np.random.default_rng(0).exponential(1.0, 3000)
    found = (
        mixed_mean([values], np.ones(1)) if name == "mean" else mixed_quantile([values], np.ones(1), QUANTILES[name])
    )
    assert found == statistic(values, name)
    halves = [values[::2], values[1::2]]
    both = (
        mixed_mean(halves, np.full(2, 0.5))
        if name == "mean"
        else mixed_quantile(halves, np.full(2, 0.5), QUANTILES[name])
    )
    assert both == pytest.approx(statistic(values, name), rel=0.01)


def test_a_share_of_the_requests_counts_and_not_how_many_were_run() -> None:
    few, many = np.full(100, 1.0), np.full(10_000, 3.0)
    assert mixed_quantile([few, many], np.array([0.8, 0.2]), 0.5) == 1.0
    assert mixed_quantile([few, many], np.array([0.2, 0.8]), 0.5) == 3.0
    assert mixed_mean([few, many], np.array([0.8, 0.2])) == pytest.approx(1.4)


def test_times_that_are_known_to_the_end_leave_no_doubt() -> None:
    values = np.linspace(0.1, 1.0, 500)
    whole = KindTimes(values_s=values, sample=False)
    assert overall_clearance([whole], Goal("ttft", "p90", 0.95)) == math.inf
    assert overall_clearance([whole], Goal("ttft", "p90", 0.85)) == -math.inf
    assert error_along(values) > 0


def test_requests_without_such_a_time_have_no_say() -> None:
    none = KindTimes(values_s=np.full(500, np.nan))
    some = KindTimes(values_s=np.where(np.arange(1000) % 2, np.nan, 0.1), group=np.arange(1000) // 2 % 2)
    assert overall_clearance([none], Goal("tpot", "p90", 0.1)) == math.inf
    assert overall_clearance([none, some], Goal("tpot", "p90", 0.2)) == math.inf
