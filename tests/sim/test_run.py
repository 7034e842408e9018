"""Goodput in closed form, and sampled runs, against a run played event by event."""

from __future__ import annotations

import math
import random
import sys

import numpy as np
import pytest
from tests.sim.plain_run import REPAIR, RESTART, PlainRun

from gnomon.sim.run import (
    Interruptions,
    best_interval_s,
    daly_interval_s,
    erlang_b,
    goodput,
    repairs,
    sampled,
    waiting,
    young_interval_s,
)
from gnomon.sim.run.sampled import MOST_FAILURES

sampled_runs = sys.modules["gnomon.sim.run.sampled"]  # the name is the function's too
WARM, COUNTED, RUNS = 60, 500, 12
"""Failures of a plain run until its spares are in repair as often as later on, those that are counted, and runs."""
NEAR = 4.0
"""Standard errors that a mean may be off by."""
SMALL = 1e-6
"""A share too rare for plain runs to have seen it."""


def some_case(seed: int) -> tuple[Interruptions, float]:
    """A run from one that hardly fails to one that gets nowhere, and an interval."""
    pick = random.Random(seed)
    busy = pick.choice([0.0, 30.0, 300.0])
    case = Interruptions(
        failures_per_s=10 ** -pick.uniform(3, 5.5),
        hardware=pick.choice([0.0, 0.3, 0.78, 1.0]),
        stall_s=pick.choice([0.5, 20.0, 120.0]),
        soft_lag_s=busy * pick.choice([0.0, 0.5, 1.0]),
        hard_lag_s=busy,
        busy_s=busy,
        soft_restart_s=pick.choice([60.0, 600.0]),
        hard_restart_s=pick.choice([600.0, 1800.0]),
        repair_s=pick.choice([0.0, 3600.0, 86400.0]),
        spares=pick.choice([0, 1, 4]),
    )
    return case, pick.choice([100.0, 600.0, 3600.0])


def played(case: Interruptions, interval_s: float, seed: int) -> tuple[float, ...]:
    """Shares of the time, and failures per second, of a run once it is warm."""
    run = PlainRun(case, interval_s, random.Random(seed)).run(failures=WARM)
    start = run.now, run.done, run.spent.copy(), run.failures
    run.run(failures=WARM + COUNTED)
    elapsed = run.now - start[0]
    spent = run.spent - start[2]
    useful = (run.done - start[1]) * interval_s
    return useful / elapsed, spent[RESTART] / elapsed, spent[REPAIR] / elapsed, (run.failures - start[3]) / elapsed


@pytest.mark.battery(6)
@pytest.mark.parametrize("seed", range(24))
def test_closed_form_is_the_mean_of_plain_runs(seed: int) -> None:
    case, interval = some_case(seed)
    found = goodput(case, interval)
    told = np.array([found.share, found.restarts, found.repairs, found.failures_per_s])
    runs = np.array([played(case, interval, 100 * seed + one) for one in range(RUNS)])
    error = runs.std(axis=0, ddof=1) / math.sqrt(RUNS)
    assert np.all(np.abs(runs.mean(axis=0) - told) <= NEAR * error + SMALL), (told, runs.mean(axis=0))


@pytest.mark.parametrize("seed", range(24))
def test_shares_add_up(seed: int) -> None:
    case, interval = some_case(seed)
    found = goodput(case, interval)
    parts = (found.share, found.stalls, found.lost_work, found.restarts, found.repairs)
    assert min(parts) >= -1e-12
    assert sum(parts) == pytest.approx(1, abs=1e-9)


@pytest.mark.battery(6)
@pytest.mark.parametrize("seed", range(12))
def test_sampled_runs_are_distributed_as_plain_ones(seed: int) -> None:
    case, interval = some_case(seed)
    count, runs = 40, 200
    plain = np.array([PlainRun(case, interval, random.Random(one)).run(intervals=count).now for one in range(runs)])
    many = sampled(case, np.full(4 * runs, interval), np.full(4 * runs, case.failures_per_s), count, seed=seed)
    error = math.hypot(plain.std() / math.sqrt(runs), many.wall_s.std() / math.sqrt(4 * runs))
    assert abs(plain.mean() - many.wall_s.mean()) <= NEAR * error + 1e-9 * plain.mean()
    # Two samples of one distribution: Kolmogorov and Smirnov's largest distance, at one in ten thousand.
    both = np.sort(np.concatenate([plain, many.wall_s]))
    apart = np.searchsorted(np.sort(plain), both, "right") / runs
    apart -= np.searchsorted(np.sort(many.wall_s), both, "right") / (4 * runs)
    assert np.abs(apart).max() <= 2.23 * math.sqrt(5 / (4 * runs))
    assert np.all(many.trained_s >= count * interval * (1 - 1e-9))
    assert np.all(many.trained_s <= many.wall_s * (1 + 1e-9))


@pytest.mark.battery(2)
@pytest.mark.parametrize("seed", range(12))
def test_spares_are_used_up_first(seed: int) -> None:
    """Runs of a few repair times: their mean length has what they wait for, from all spares at the start on."""
    pick = random.Random(seed)
    case = Interruptions(
        failures_per_s=10 ** -pick.uniform(3.5, 5), hardware=pick.choice([0.5, 1.0]), stall_s=5.0,
        soft_restart_s=300.0, hard_restart_s=300.0, repair_s=86400.0, spares=pick.choice([0, 1, 2, 5]),
    )  # fmt: skip
    interval, runs = 600.0, 800
    count = pick.choice([0.1, 0.5, 2.0, 8.0]) * case.repair_s / interval
    found = goodput(case, interval, count * interval)
    rates = np.full(runs, case.failures_per_s)
    wall = sampled(case, np.full(runs, interval), rates, count, seed=seed).wall_s
    assert wall.mean() == pytest.approx(count * interval / found.share, abs=NEAR * wall.std() / math.sqrt(runs))
    assert found.repairs <= goodput(case, interval).repairs * (1 + 1e-9)
    assert sum((found.share, found.stalls, found.lost_work, found.restarts, found.repairs)) == pytest.approx(1)


def test_waiting_is_erlangs_in_the_long_run() -> None:
    case = Interruptions(
        failures_per_s=1e-4, hardware=1.0, stall_s=1.0, soft_restart_s=1.0, hard_restart_s=1.0, repair_s=1e4, spares=1
    )
    assert waiting(case, math.inf) == erlang_b(2, 1.0) == 0.2
    assert waiting(case, 199 * 1e4) == pytest.approx(0.2, rel=0.01)
    shares = [waiting(case, length) for length in (1e2, 1e3, 1e4, 1e5, 1e6)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(1e2 / 1e4 / 4, rel=0.02)  # half of the last state's time, for half a repair


def test_a_long_run_has_the_closed_forms_length() -> None:
    case = Interruptions(
        failures_per_s=1e-4, hardware=0.78, stall_s=5.0, soft_lag_s=60.0, hard_lag_s=60.0, busy_s=60.0,
        soft_restart_s=900.0, hard_restart_s=900.0, repair_s=86400.0, spares=12,
    )  # fmt: skip
    interval, count = 300.0, 200_000.0
    mean = count * interval / goodput(case, interval).share
    assert mean * 1e-4 > 1.5 * MOST_FAILURES  # drawn in part
    runs = sampled(case, np.full(64, interval), np.full(64, 1e-4), count)
    alone = sampled(case, np.full(64, interval), np.full(64, 1e-4), count / 4, seed=1)
    assert runs.wall_s.mean() == pytest.approx(mean, rel=0.003)
    assert runs.wall_s.std() == pytest.approx(alone.wall_s.std() * 2, rel=0.35)


def large_run(spares: int = 0, repair_s: float = 0.0) -> Interruptions:
    """100,000 GPUs at Llama 3's rate: a failure in half an hour, a restart in a quarter."""
    return Interruptions(
        failures_per_s=1e5 / 50_677 / 3600, hardware=0.78, stall_s=2.0, soft_lag_s=60.0, hard_lag_s=60.0, busy_s=60.0,
        soft_restart_s=900.0, hard_restart_s=900.0, repair_s=repair_s, spares=spares,
    )  # fmt: skip


@pytest.mark.parametrize("case", [large_run(), large_run(spares=60, repair_s=86400.0)])
def test_long_runs_spread_as_the_closed_form_at_their_rates(case: Interruptions) -> None:
    """Each run has thousands of failures, so that hardly anything but its rate tells it from another."""
    interval, runs, days = 120.0, 256, 100
    rates = case.failures_per_s * np.exp(0.75 * np.random.default_rng(5).normal(size=runs).clip(-3, 3))
    count = days * 86400 / interval
    found = count * interval / sampled(case, np.full(runs, interval), rates, count).wall_s
    told = np.array([goodput(case.at(rate), interval, count * interval).share for rate in rates.tolist()])
    assert rates.max() / rates.min() > 20
    for edge in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert np.quantile(found, edge) == pytest.approx(np.quantile(told, edge), abs=0.01)
    assert np.abs(found - told).max() < 0.05


@pytest.mark.parametrize("case", [large_run(), large_run(spares=1, repair_s=900.0)])
@pytest.mark.parametrize(("faster", "most"), [(1.0, 100), (6.0, 400)])
def test_runs_drawn_in_part_are_distributed_as_whole_ones(
    case: Interruptions, faster: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is one that hardly gets to a checkpoint: dozens of failures for each."""
    interval, count, runs = 120.0, 400.0 if faster == 1 else 40.0, 400
    asked = (case, np.full(runs, interval), np.full(runs, faster * case.failures_per_s), count)
    whole = sampled(*asked, seed=1)
    monkeypatch.setattr(sampled_runs, "MOST_FAILURES", most)
    parts = sampled(*asked, seed=2)
    error = math.hypot(whole.wall_s.std(), parts.wall_s.std()) / math.sqrt(runs)
    assert abs(whole.wall_s.mean() - parts.wall_s.mean()) <= NEAR * error
    assert parts.wall_s.std() == pytest.approx(whole.wall_s.std(), rel=0.25)
    assert np.all(parts.trained_s <= parts.wall_s)
    assert parts.trained_s.mean() == pytest.approx(whole.trained_s.mean(), rel=0.05)


@pytest.mark.parametrize("spares", [0, 1, 5, 40])
@pytest.mark.parametrize("load", [0.1, 3.0, 30.0])
def test_settled_repairs_are_those_of_the_whole_chain(
    spares: int, load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Interruptions(
        failures_per_s=load / 1e4, hardware=1.0, stall_s=1.0, soft_restart_s=1.0, hard_restart_s=1.0, repair_s=1e4,
        spares=spares,
    )  # fmt: skip
    settled = waiting(case, 30e4)
    monkeypatch.setattr(repairs, "SETTLED", math.inf)
    assert settled == pytest.approx(waiting(case, 30e4), rel=1e-6)


@pytest.mark.parametrize("seed", range(24))
def test_no_interval_is_better_than_the_best(seed: int) -> None:
    case, _ = some_case(seed)
    step = random.Random(seed).choice([0.5, 4.0, 30.0])
    best = best_interval_s(case, step)
    most = goodput(case, best).share
    assert round(best / step) == pytest.approx(best / step)
    for factor in (0.5, 0.8, 0.95, 1.05, 1.25, 2.0):
        steps = max(round(best * factor / step), 1)
        if steps * step >= case.busy_s:
            assert goodput(case, steps * step).share <= most * (1 + 1e-12)


def test_plain_runs_are_best_there_too() -> None:
    """Twice and half the best interval lose, played event by event."""
    case = Interruptions(
        failures_per_s=1 / 10_000, hardware=0.5, stall_s=40.0, soft_restart_s=600.0, hard_restart_s=600.0
    )
    best = best_interval_s(case, 1.0)
    mean = {
        factor: np.mean([played(case, factor * best, seed)[0] for seed in range(RUNS)]) for factor in (1 / 3, 1.0, 3.0)
    }
    assert mean[1.0] > max(mean[1 / 3], mean[3.0])


@pytest.mark.parametrize("stall", [0.1, 1.0, 10.0])
def test_best_interval_is_youngs_where_failures_are_rare(stall: float) -> None:
    """Daly's series: the relative difference to Young's is sqrt(stall x rate / 2) / 3 in its first term."""
    rate = 1e-6
    young, daly = young_interval_s(stall, rate), daly_interval_s(stall, rate)
    assert young == pytest.approx(math.sqrt(2 * stall / rate))
    assert daly == pytest.approx(young, rel=math.sqrt(stall * rate / 2))
    assert daly < young


def test_youngs_form_is_the_limit_of_rare_failures() -> None:
    """Young (CACM 1974): half a cycle and a restart are lost to each failure, and no two are in one interval."""
    case = Interruptions(failures_per_s=1e-7, hardware=0.5, stall_s=10.0, soft_restart_s=600.0, hard_restart_s=1200.0)
    young = 3600 / 3610 * (1 - 1e-7 * (3610 / 2 + 900))
    assert goodput(case, 3600.0).share == pytest.approx(young, abs=1e-7)


def test_erlang() -> None:
    """One server: load / (1 + load). Ten servers at load ten: 0.2146 (Erlang 1917, and every table since)."""
    assert erlang_b(1, 0.5) == pytest.approx(1 / 3)
    assert erlang_b(10, 10.0) == pytest.approx(0.21458, abs=1e-5)
    assert erlang_b(3, 0.0) == 0.0


def test_no_failures() -> None:
    case = Interruptions(failures_per_s=0.0, hardware=0.5, stall_s=10.0, soft_restart_s=1.0, hard_restart_s=1.0)
    assert goodput(case, 90.0).share == pytest.approx(0.9)
    assert best_interval_s(case, 2.0) == 2.0
