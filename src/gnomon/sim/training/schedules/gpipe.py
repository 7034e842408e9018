"""GPipe (Huang et al. 2019): all micro-batches forward, then all backward; one chunk of the network per rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Schedule, Task, micro_batches
from gnomon.sim.training.pipelines import Terms
from gnomon.spec.workload import Floats


class GPipe(Schedule):
    name = "gpipe"
    place = 0
    dominated = True

    def fills(self, pp: int) -> int:
        return 1

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        self.check(pp, vp, micros)
        return [[*micro_batches("F", micros), *micro_batches("B", micros)] for _ in range(pp)]

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        return np.broadcast_arrays(micros, pp, rank)[0]

    def heads(self, pp: Counts, vp: Counts, micros: Counts) -> Any:
        """The last rank, too, takes all micro-batches forward first."""
        return micros

    def bound_s(self, t: Terms) -> Floats:
        """Exact: all forwards pass through the stages at the rate of the slowest one, then all backwards."""
        return _pass_s(t) + _pass_s(t.turned())


def _pass_s(t: Terms) -> Floats:
    ends = np.maximum(t.first_f, t.last_f)
    slowest = t.f + np.where(t.p > 2, np.maximum(ends, 0), np.where(t.p > 1, ends, t.first_f + t.last_f))
    way = t.p * t.f + t.first_f + t.last_f + (t.p - 1) * t.send_f
    return way + (t.m - 1) * np.maximum(slowest, t.send_f)


SCHEDULE = GPipe()
