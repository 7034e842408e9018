"""Runs drawn at random: how long each takes from its first step to its last checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.sim.run.base import Interruptions
from gnomon.spec.workload import Floats

Counts = NDArray[np.int64]
MOST_FAILURES = 4000
"""Of one run. What is left of a longer one takes its share of the mean, and adds to the spread by its square root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Seconds of every run."""

    wall_s: Floats
    trained_s: Floats
    """In steps, those that were lost too; of a job with fewer nodes its share of them."""


def sampled(
    case: Interruptions, interval_s: Floats, rates: Floats, intervals: float, expected: float, seed: int = 0
) -> Outcomes:
    """A run for every interval and rate of failures, each of so many intervals with a checkpoint behind each.

    `expected` is how many failures the longest of them has on average.
    """
    part = min(1.0, MOST_FAILURES / expected) if expected > 0 else 1.0
    some = intervals * part
    found = _lives(case, interval_s, rates, some, np.random.default_rng(seed))
    if some == intervals:
        return found
    more = intervals / some
    return Outcomes(wall_s=_longer(found.wall_s, interval_s, rates, more),
                    trained_s=_longer(found.trained_s, interval_s, rates, more))  # fmt: skip


def _longer(seconds: Floats, interval_s: Floats, rates: Floats, more: float) -> Floats:
    """Sums of `more` times as many independent parts. Runs that share interval and rate have one mean."""
    _, group = np.unique(np.stack([interval_s, rates]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    mean = (np.bincount(group, seconds) / np.bincount(group))[group]
    return np.asarray(mean * more + (seconds - mean) * np.sqrt(more))


def _lives(
    case: Interruptions, interval_s: Floats, rates: Floats, intervals: float, drawn: np.random.Generator
) -> Outcomes:
    """From one failure to the next, all runs side by side: a wait for a node, a restart, then training."""
    runs = interval_s.size
    speed = np.ones(runs)
    wall, trained, left = np.zeros(runs), np.zeros(runs), np.full(runs, intervals)
    restart = np.zeros(runs)
    broken = np.zeros(runs, np.int64)
    going = np.ones(runs, bool)
    while going.any():
        lasting = drawn.exponential(1.0, runs) / rates
        steps_s = interval_s / speed
        waits = np.maximum(case.busy_s - steps_s, 0.0)
        cycle = steps_s + waits + case.stall_s
        hard = drawn.random(runs) < case.hardware
        run_s = np.maximum(lasting - restart, 0.0)
        needs = np.maximum(left * cycle - waits, left * steps_s)  # after a restart no checkpoint is being written
        done = going & (run_s >= needs)
        run_s = np.where(done, needs, run_s)
        wall += np.where(going, np.where(done, restart + run_s, lasting), 0.0)
        begun = np.floor((run_s + waits) / cycle)
        partly = np.minimum(run_s - begun * cycle + np.where(begun, waits, 0.0), steps_s)
        trained += np.where(going, begun * interval_s + partly * speed, 0.0)
        lag = np.where(hard, case.hard_lag_s, case.soft_lag_s)
        saved = np.maximum(np.floor((run_s + waits - lag) / cycle), 0.0)
        left = np.where(going, np.where(done, 0.0, left - saved), left)
        going = going & ~done
        restart = np.where(hard, case.hard_restart_s, case.soft_restart_s)
        if case.repair_s:
            wait, broken = _replaced(case, lasting, broken, hard, drawn)
            wall += np.where(going, wait, 0.0)
        if case.replicas:
            speed = 1 - np.clip(broken - case.spares, 0, case.replicas - 1) / case.replicas
    return Outcomes(wall_s=wall, trained_s=trained)


def _replaced(
    case: Interruptions, lasting: Floats, broken: Counts, hard: NDArray[np.bool_], drawn: np.random.Generator
) -> tuple[Floats, Counts]:
    """Seconds that a failure waits for the first of the nodes in repair, where no spare is left, and how many are then
    in repair. Each comes back after an exponential time, so that only their number counts."""
    back = drawn.binomial(broken, -np.expm1(-lasting / case.repair_s))
    broken = broken - back + hard
    if case.replicas:
        return np.zeros(hard.size), broken
    waits = broken > case.spares
    first = drawn.exponential(case.repair_s, hard.size) / (case.spares + 1)
    return np.where(waits, first, 0.0), np.minimum(broken, case.spares)
