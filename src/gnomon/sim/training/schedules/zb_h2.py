"""ZB-H2 (Qi et al. 2024, arXiv:2401.10241, section 2.2): zero bubble with twice the activation memory of 1F1B.

Ranks run enough forwards ahead to have work until the first backward arrives, and reorder the weights at the end. Also
called ZB2P.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Schedule, Task
from gnomon.sim.training.orders import split_order
from gnomon.sim.training.pipelines import Terms
from gnomon.spec.workload import Floats


class ZeroBubbleH2(Schedule):
    name = "zb-h2"
    place = 4
    splits_backward = True
    ends_on_first = False

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        """Rank `r` does the weights of a micro-batch `2 r` micro-batches later."""
        self.check(pp, vp, micros)
        return [split_order(micros, warm_ups=2 * (pp - 1 - rank), later=2 * rank) for rank in range(pp)]

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        return np.minimum(micros, 2 * np.add(pp, np.zeros_like(rank)) - 1)

    def heads(self, pp: Counts, vp: Counts, micros: Counts) -> Any:
        """The last rank does the weights of its head late, too."""
        return np.minimum(micros, 2 * np.asarray(pp) - 1)

    def bound_s(self, t: Terms) -> Floats:
        from gnomon.sim.training.bounds import split_s

        most = np.minimum(t.m, 2 * t.p - 1)
        return split_s(t, most, np.ones_like(t.m), most)


SCHEDULE = ZeroBubbleH2()
