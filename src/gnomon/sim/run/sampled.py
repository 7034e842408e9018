"""Runs drawn at random: how long each takes from its first step to its last checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.sim.run.base import Interruptions
from gnomon.sim.run.closed_form import goodput
from gnomon.spec.workload import Floats

Counts = NDArray[np.int64]
MOST_FAILURES = 4000
"""That are drawn of one run, on average. Of a longer one only so many intervals are drawn as meet them."""
FEWEST = 16
"""Intervals of a run that is cut. Where they take more failures than that, each takes hundreds."""
NONE = 1e-100
"""A goodput that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Seconds of every run."""

    wall_s: Floats
    trained_s: Floats
    """In steps, those that were lost too."""


def sampled(case: Interruptions, interval_s: Floats, rates: Floats, intervals: float, seed: int = 0) -> Outcomes:
    """A run for every interval and rate of failures, each of so many intervals with a checkpoint behind each.

    A run of more than `MOST_FAILURES` is drawn in part. Its mean is the closed form's at its own rate, and what the
    part is away from the part's mean grows by the square root, as a sum of independent parts does. Steps that are lost
    are those of the part, as many times as it is longer.
    """
    drawn = np.random.default_rng(seed)
    each = np.array([_failures(case, *one) for one in zip(interval_s.tolist(), rates.tolist(), strict=True)])
    cut = each * intervals > MOST_FAILURES
    some = np.where(cut, np.floor(MOST_FAILURES / np.maximum(each, NONE)), intervals)
    some = np.where(cut & (some < FEWEST), 0.0, some)
    found = _lives(case, interval_s, rates, some, drawn)
    wall, trained = found.wall_s, found.trained_s
    for one in np.flatnonzero(cut).tolist():
        at, interval, part = case.at(float(rates[one])), float(interval_s[one]), float(some[one])
        mean, share = _mean(at, interval, intervals)
        if part:
            away = wall[one] - _mean(at, interval, part)[0]
            wall[one] = mean + away * math.sqrt(intervals / part)
            trained[one] *= intervals / part
        else:
            wall[one] = mean * _rarely(at, interval, intervals, drawn)
            trained[one] = wall[one] * share
    return Outcomes(wall_s=wall, trained_s=np.clip(trained, intervals * interval_s, wall))


def _failures(case: Interruptions, interval_s: float, rate: float) -> float:
    """Of one interval, until its checkpoint is written, on average."""
    return interval_s * rate / max(goodput(replace(case.at(rate), repair_s=0.0), interval_s).share, NONE)


def _mean(case: Interruptions, interval_s: float, intervals: float) -> tuple[float, float]:
    """Seconds of a run of so many intervals, in closed form, and the share of them in steps."""
    work_s = intervals * interval_s
    found = goodput(case, interval_s, work_s)
    return work_s / max(found.share, NONE), found.share + found.lost_work


def _rarely(case: Interruptions, interval_s: float, intervals: float, drawn: np.random.Generator) -> float:
    """The length of a run over its mean where hardly a restart gets as far as a checkpoint: waits for one that does are
    exponential, and each goes on for a geometric number of intervals."""
    later, ends = max(round(intervals) - 1, 0), -math.expm1(-case.failures_per_s * case.cycle_s(interval_s))
    return float(drawn.gamma(1 + drawn.binomial(later, ends)) / (1 + later * ends))


def _lives(
    case: Interruptions, interval_s: Floats, rates: Floats, intervals: Floats, drawn: np.random.Generator
) -> Outcomes:
    """From one failure to the next, all runs side by side: a wait for a node, a restart, then training."""
    runs = interval_s.size
    waits = np.maximum(case.busy_s - interval_s, 0.0)
    cycle = interval_s + waits + case.stall_s
    wall, trained, left = np.zeros(runs), np.zeros(runs), intervals.astype(np.float64)
    restart = np.zeros(runs)
    broken = np.zeros(runs, np.int64)
    going = np.ones(runs, bool)
    while going.any():
        lasting = drawn.exponential(1.0, runs) / rates
        hard = drawn.random(runs) < case.hardware
        run_s = np.maximum(lasting - restart, 0.0)
        needs = np.maximum(left * cycle - waits, left * interval_s)  # after a restart no checkpoint is being written
        done = going & (run_s >= needs)
        run_s = np.where(done, needs, run_s)
        wall += np.where(going, np.where(done, restart + run_s, lasting), 0.0)
        begun = np.floor((run_s + waits) / cycle)
        partly = np.minimum(run_s - begun * cycle + np.where(begun, waits, 0.0), interval_s)
        trained += np.where(going, begun * interval_s + partly, 0.0)
        lag = np.where(hard, case.hard_lag_s, case.soft_lag_s)
        saved = np.maximum(np.floor((run_s + waits - lag) / cycle), 0.0)
        left = np.where(going, np.where(done, 0.0, left - saved), left)
        going = going & ~done
        restart = np.where(hard, case.hard_restart_s, case.soft_restart_s)
        if case.repair_s:
            wait, broken = _replaced(case, lasting, broken, hard, drawn)
            wall += np.where(going, wait, 0.0)
    return Outcomes(wall_s=wall, trained_s=trained)


def _replaced(
    case: Interruptions, lasting: Floats, broken: Counts, hard: NDArray[np.bool_], drawn: np.random.Generator
) -> tuple[Floats, Counts]:
    """Seconds that a failure waits for the first of the nodes in repair, where no spare is left, and how many are then
    in repair. Each comes back after an exponential time, so that only their number counts."""
    back = drawn.binomial(broken, -np.expm1(-lasting / case.repair_s))
    broken = broken - back + hard
    waits = broken > case.spares
    first = drawn.exponential(case.repair_s, hard.size) / (case.spares + 1)
    return np.where(waits, first, 0.0), np.minimum(broken, case.spares)
