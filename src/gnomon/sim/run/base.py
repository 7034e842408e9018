"""What interrupts a training run, in seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """Failures of one job and what each costs it.

    Failures come at random, at one rate, whenever the job computes, saves or restarts. A hardware failure takes a node
    out for repair; after any other one the same nodes go on. Training runs from one checkpoint to the next: an interval
    of steps, then a stall. A checkpoint can be restarted from once it is written, which takes `soft_lag_s` after the
    stall, and `hard_lag_s` where a node with its disks is gone.
    """

    failures_per_s: float
    """Of the job as a whole, of both kinds."""
    hardware: float
    """The share of them that takes a node out."""
    stall_s: float
    """Seconds that training waits for one checkpoint."""
    soft_lag_s: float = 0.0
    hard_lag_s: float = 0.0
    busy_s: float = 0.0
    """Seconds after a stall in which the next one cannot begin: the last checkpoint is still being written."""
    soft_restart_s: float
    """From a failure to the next step: detection, start of the processes, loading the checkpoint."""
    hard_restart_s: float
    repair_s: float = 0.0
    """Mean time until a node is back."""
    spares: int = 0
    """Nodes that wait to take the place of one in repair."""

    @property
    def kinds(self) -> tuple[tuple[float, float, float], ...]:
        """Of failures that leave the nodes and those that do not: share, lag of the checkpoint, restart."""
        return (
            (1 - self.hardware, self.soft_lag_s, self.soft_restart_s),
            (self.hardware, self.hard_lag_s, self.hard_restart_s),
        )

    def cycle_s(self, interval_s: float) -> float:
        """From one checkpoint to the next."""
        return max(interval_s, self.busy_s) + self.stall_s

    def at(self, failures_per_s: float) -> Interruptions:
        return replace(self, failures_per_s=failures_per_s)
