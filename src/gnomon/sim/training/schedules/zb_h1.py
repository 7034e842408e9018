"""ZB-H1 (Qi et al. 2024, arXiv:2401.10241, section 2.1): zero bubble with the activation memory of 1F1B.

Forwards and backwards by input go in 1F1B's order, which the ranks before wait for less; backwards by weight fill what
would be bubbles. Also called ZB1P.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Schedule, Task
from gnomon.sim.training.orders import split_order
from gnomon.sim.training.pipelines import Terms
from gnomon.spec.workload import Floats


class ZeroBubbleH1(Schedule):
    name = "zb-h1"
    place = 3
    splits_backward = True
    ends_on_first = False

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        """Rank `r` does the weights of a micro-batch `r` micro-batches later: each holds as many as the first."""
        self.check(pp, vp, micros)
        return [split_order(micros, warm_ups=pp - 1 - rank, later=rank) for rank in range(pp)]

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        return np.minimum(micros, np.add(pp, np.zeros_like(rank)))

    def heads(self, pp: Counts, vp: Counts, micros: Counts) -> Any:
        """The last rank does the weights of its head late, too."""
        return np.minimum(micros, pp)

    def bound_s(self, t: Terms) -> Floats:
        from gnomon.sim.training.bounds import split_s

        return split_s(t, np.minimum(t.m, t.p), np.ones_like(t.m), np.minimum(t.m, t.p))


SCHEDULE = ZeroBubbleH1()
