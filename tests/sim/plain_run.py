"""A training run with failures, event by event: the plain version of `gnomon.sim.run`."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field

from gnomon.sim.run import Interruptions

TRAIN, STALL, RESTART, REPAIR = "train", "stall", "restart", "repair"


@dataclass
class PlainRun:
    """One job. Time passes in pieces, each of which a failure may cut short; checkpoints have the time from which they
    can be used."""

    case: Interruptions
    interval_s: float
    drawn: random.Random
    now: float = 0.0
    spent: Counter[str] = field(default_factory=Counter)
    done: int = 0
    """Intervals behind the last checkpoint that a restart found."""
    ahead: int = 0
    """Intervals since, each with a checkpoint."""
    written: list[tuple[float, float, float]] = field(default_factory=list)
    """Of those checkpoints: from when on they can be used on the same nodes, without one of them, and when the next may
    begin."""
    broken: list[float] = field(default_factory=list)
    """When nodes come back from repair, the next one first."""
    failures: int = 0

    def __post_init__(self) -> None:
        self.fails_at = self.now + self.drawn.expovariate(self.case.failures_per_s)

    def run(self, intervals: float = float("inf"), failures: float = float("inf")) -> PlainRun:
        """Until so many intervals are done, or so many failures have come."""
        while self.done + self.ahead < intervals and self.failures < failures:
            self.work()
        return self

    def work(self) -> None:
        """An interval, the wait for the checkpoint before it, and its own."""
        free_s = self.written[-1][2] if self.written else 0.0
        trained = self.passes(TRAIN, self.interval_s) and self.passes(STALL, free_s - self.now)
        if not trained or not self.passes(STALL, self.case.stall_s):
            self.recover()
            return
        self.ahead += 1
        at = self.now
        self.written.append((at + self.case.soft_lag_s, at + self.case.hard_lag_s, at + self.case.busy_s))

    def passes(self, what: str, seconds: float) -> bool:
        """Whether time passes without a failure."""
        until = self.now + max(seconds, 0.0)
        whole = until < self.fails_at
        self.spent[what] += (until if whole else self.fails_at) - self.now
        self.now = until if whole else self.fails_at
        return whole

    def recover(self) -> None:
        """Back to the last checkpoint that can be used, on nodes that work; restarts fail as anything does."""
        at = self.now  # what is not written by then never is
        hard = self.failed()
        usable = [times for times in self.written if times[hard] <= at]
        self.done, self.ahead, self.written = self.done + len(usable), 0, []
        while not self.passes(RESTART, self.case.hard_restart_s if hard else self.case.soft_restart_s):
            hard = self.failed()

    def failed(self) -> bool:
        """Whether a node is gone; the job then waits for one, in which nothing fails."""
        self.failures += 1
        hard = self.drawn.random() < self.case.hardware
        if hard:
            repair = self.drawn.expovariate(1 / self.case.repair_s) if self.case.repair_s else 0.0
            heapq.heappush(self.broken, self.now + repair)
        while self.broken and self.broken[0] <= self.now:
            heapq.heappop(self.broken)
        if hard and len(self.broken) > self.case.spares:
            back = heapq.heappop(self.broken)
            self.spent[REPAIR] += back - self.now
            self.now = back
        self.fails_at = self.now + self.drawn.expovariate(self.case.failures_per_s)
        return hard
