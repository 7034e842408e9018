"""DualPipeV (github.com/deepseek-ai/DualPipe; torch.distributed.pipelining): DualPipe folded in the middle.

Two chunks per rank in a V take the place of two copies of the network: what were ranks on the other side of the middle
are second chunks, and the two directions are the ways down and up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Schedule, Task
from gnomon.sim.training.orders import dual_order
from gnomon.sim.training.placement import V


class DualPipeV(Schedule):
    name = "dualpipe-v"
    place = 7
    placement = V
    splits_backward = True
    overlaps = True
    ends_on_first = False
    chunks = (2, 2)

    def fewest(self, pp: Counts) -> Any:
        return 2 * np.asarray(pp)

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        self.check(pp, vp, micros)
        return [dual_order(0, 1, pp, rank, micros) for rank in range(pp)]

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        """Of both chunks together."""
        return 2 * np.asarray(pp) + np.ones_like(rank)


SCHEDULE = DualPipeV()
