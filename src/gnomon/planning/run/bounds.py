"""The most goodput that a plan may reach on so many chips, and the fewest spare nodes that it needs, known before it is
priced."""

from __future__ import annotations

import math
from dataclasses import replace

from gnomon.planning.run.checkpoints import BLOCKED_S
from gnomon.planning.run.reliability import spares_of
from gnomon.sim.run import Interruptions, goodput
from gnomon.sim.run.closed_form import daly_interval_s
from gnomon.spec.reliability import ENOUGH, FaultTolerance
from gnomon.units import HOUR_S

HALVINGS = 16
"""Of a bracket whose upper end is a bound already."""


def _without_checkpoints(asked: FaultTolerance, ranks: int) -> Interruptions:
    """A job whose checkpoints are written and loaded in no time, so that each blocks it for no more than the least that
    one does."""
    restart = asked.detection_s + asked.restart_s
    return Interruptions(
        failures_per_s=asked.failures.per_gpu_hour * ranks / HOUR_S,
        hardware=asked.failures.hardware,
        stall_s=BLOCKED_S,
        soft_restart_s=restart,
        hard_restart_s=restart,
        repair_s=asked.repair_s,
    )


def most_goodput(asked: FaultTolerance, ranks: int) -> float:
    """At the best interval, of whole steps or not, and without waiting for repairs."""
    case = _without_checkpoints(asked, ranks)
    if case.failures_per_s <= 0:
        return 1.0
    return goodput(replace(case, repair_s=0.0), daly_interval_s(BLOCKED_S, case.failures_per_s)).share


def fewest_spares(asked: FaultTolerance, ranks: int, wall_s: float) -> int:
    """Of a run that takes at least so long. Enough of them leave next to no wait, and more are never fewer for a longer
    run."""
    return spares_of(asked, _without_checkpoints(asked, ranks), wall_s * (1 - ENOUGH))


def longest_run_s(asked: FaultTolerance, ranks: int, per_node: int, budget_gpu_s: float, deadline_s: float) -> float:
    """An upper bound on how long a job runs until a deadline, or until so many GPU-seconds are spent, those of its
    spare nodes too."""

    def paid_for(wall_s: float) -> bool:
        return (ranks + fewest_spares(asked, ranks, wall_s) * per_node) * wall_s <= budget_gpu_s

    high = min(deadline_s, budget_gpu_s / ranks)
    if not math.isfinite(high) or paid_for(high):
        return high
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if paid_for(middle) else (low, middle)
    return high
