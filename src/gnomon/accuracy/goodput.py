"""Effective training time of published runs, predicted with the failure rate of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnomon.catalog.failures import DEFAULT, failure_rate, published_runs
from gnomon.planning.run.checkpoints import BLOCKED_S, FINISHED_S
from gnomon.sim.run import Interruptions, best_interval_s, goodput
from gnomon.spec.reliability import DETECTION_S, RESTART_S, InterruptedRun
from gnomon.units import HOUR_S

POINTS = 0.03
"""How far a prediction may be from what was reported: three points, a target of our own and of no source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputRow:
    """One run: what its source says, what is predicted, and what would be with its own failures."""

    run: InterruptedRun
    predicted: float
    own: float | None
    """With its own rate of failures, where it gives one: what is left is due to restarts and checkpoints."""

    @property
    def error(self) -> float:
        """Predicted less published. Of a lower bound, what is missing to it, or nothing."""
        assert self.run.effective is not None
        away = self.predicted - self.run.effective
        return min(away, 0.0) if self.run.kind == "above" else away

    @property
    def within(self) -> bool:
        return abs(self.error) <= POINTS


def goodput_rows(rate_of: str = DEFAULT) -> Iterator[GoodputRow]:
    """Every published run but the one that the rate is from."""
    rate = failure_rate(rate_of)
    for run in published_runs():
        if run.name != rate.name and run.effective is not None:
            own = run.per_gpu_hour
            yield GoodputRow(
                run=run, predicted=_predicted(run, rate.per_gpu_hour), own=_predicted(run, own) if own else None
            )


def _predicted(run: InterruptedRun, per_gpu_hour: float) -> float:
    """With the recovery that its source describes, else the usual: checkpoints in the background at the best interval,
    and enough spares."""
    said = run.recovery
    restart = said.get("detection_s", DETECTION_S) + said.get("restart_s", RESTART_S)
    lag = 0.0 if "stall_s" in said else FINISHED_S
    case = Interruptions(
        failures_per_s=per_gpu_hour * run.gpus / HOUR_S,
        hardware=0.0,
        stall_s=said.get("stall_s", BLOCKED_S),
        soft_lag_s=lag,
        busy_s=lag,
        soft_restart_s=restart,
        hard_restart_s=restart,
    )
    interval = said.get("interval_s") or best_interval_s(case, 1.0)
    return goodput(case, interval).share
