"""Goodput of a run in closed form, and the checkpoint interval that makes it highest.

Failures are a Poisson process. From one failure to the next a job restarts, trains and saves; what counts of it is the
intervals whose checkpoint was written before it ended. With rate l, interval t, cycle c (interval and stall), lag w of
a checkpoint and restart r, the intervals of such a life are exp(-l w) / (exp(l c) - 1) on average, and its length
1 / (l exp(-l r)), since failures may also hit a restart. So

    goodput = t l exp(-l (w + r)) / (exp(l c) - 1),

which is Daly's complete form (A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 2006,
equation 20) where saves block training (w = 0), and Young's (CACM 1974) to first order. Waiting for repairs
(`repairs.py`) stops the clock of failures, so that it takes its share of the elapsed time beside all of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnomon.sim.run.base import Interruptions
from gnomon.sim.run.repairs import waiting

LARGEST = 700.0
"""Exponents above it overflow; such a run makes no progress."""
ROUNDS = 200
"""Halvings of a bracket: more than a float has bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Shares of the elapsed time of a long run; they add up to 1."""

    share: float
    """Steps that count."""
    stalls: float
    """Waiting for checkpoints that were restarted from, or followed by another."""
    lost_work: float
    """Steps and saves after the last checkpoint before a failure."""
    restarts: float
    """Detection, start and loading, those that were interrupted too."""
    repairs: float
    """Waiting for a node where no spare is left."""
    failures_per_s: float
    """Of the elapsed time: none while the job waits for a node."""


def goodput(case: Interruptions, interval_s: float, work_s: float = math.inf) -> Goodput:
    """Where the time of a run goes that saves a checkpoint after every `interval_s` of training; `work_s` is how long
    all its steps take, which matters where it is not much longer than repairs are."""
    rate = case.failures_per_s
    if rate <= 0:
        share = interval_s / case.cycle_s(interval_s)
        return Goodput(
            share=share, stalls=1 - share, lost_work=0.0, restarts=0.0, repairs=0.0,
            failures_per_s=0.0,
        )  # fmt: skip
    restarted = sum(share * _decay(rate * restart) for share, _, restart in case.kinds)
    intervals, saved_s = _life(case, interval_s)
    useful = rate * interval_s * (restarted * intervals)
    waits = waiting(case, work_s / useful if useful > 0 else math.inf)
    up = 1 - waits
    return Goodput(
        share=up * useful,
        stalls=max(up * rate * (restarted * (saved_s - intervals * interval_s)), 0.0),
        lost_work=max(up * (restarted - rate * (restarted * saved_s)), 0.0),
        restarts=up * (1 - restarted),
        repairs=waits,
        failures_per_s=up * rate,
    )


def _life(case: Interruptions, interval_s: float) -> tuple[float, float]:
    """From a restart to the next failure, on average: intervals whose checkpoints were written, and the seconds of
    their steps and stalls."""
    rate, cycle = case.failures_per_s, case.cycle_s(interval_s)
    written = sum(share * _decay(rate * lag) for share, lag, _ in case.kinds)
    once = written * _decay(rate * (interval_s + case.stall_s))  # the first waits for no checkpoint before it
    intervals = once / -math.expm1(-rate * cycle)
    return intervals, intervals * cycle - once * (cycle - interval_s - case.stall_s)


def young_interval_s(stall_s: float, failures_per_s: float) -> float:
    """The best interval to first order: sqrt(2 x stall x mean time between failures)."""
    return math.sqrt(2 * stall_s / failures_per_s)


def daly_interval_s(stall_s: float, failures_per_s: float) -> float:
    """The best interval of the complete form, where 1 - l t = exp(-l (t + stall))."""
    if stall_s <= 0:
        return 0.0
    load = failures_per_s * stall_s
    low, high = 0.0, 1.0
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - middle > _decay(middle + load) else (low, middle)
    return (low + high) / 2 / failures_per_s


def best_interval_s(case: Interruptions, step_s: float) -> float:
    """The multiple of a step with the highest goodput. It is no shorter than a checkpoint takes to be written."""
    least = max(1, math.ceil(case.busy_s / step_s - 1e-9))
    if case.failures_per_s <= 0:
        return least * step_s

    def share(steps: int) -> float:
        return goodput(case, steps * step_s).share

    below = max(least, math.floor(daly_interval_s(case.stall_s, case.failures_per_s) / step_s))
    return max((below, below + 1), key=share) * step_s


def _decay(exponent: float) -> float:
    return math.exp(-exponent) if exponent < LARGEST else 0.0
