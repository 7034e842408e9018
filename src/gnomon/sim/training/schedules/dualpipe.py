"""DualPipe (DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1; github.com/deepseek-ai/DualPipe): micro-batches enter a
pipeline from both ends, and forwards of one direction overlap with backwards of the other.

Every rank holds two stages, one of each of two copies of the network: twice the parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Schedule, Task
from gnomon.sim.training.orders import dual_order
from gnomon.sim.training.placement import BIDIRECTIONAL


class DualPipe(Schedule):
    name = "dualpipe"
    place = 6
    placement = BIDIRECTIONAL
    splits_backward = True
    overlaps = True
    ends_on_first = False
    even_ranks = True

    def multiple(self, pp: Counts) -> Any:
        """Half of them in each direction."""
        return 2 * np.ones_like(pp)

    def fewest(self, pp: Counts) -> Any:
        return 2 * np.asarray(pp)

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        """A rank and the one as far from the other end do the same, with the directions exchanged."""
        self.check(pp, vp, micros)
        half = pp // 2
        near = [dual_order(0, 1, half, rank, micros // 2) for rank in range(half)]
        return near + [dual_order(1, 0, half, pp - 1 - rank, micros // 2) for rank in range(half, pp)]

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        return np.add(pp, np.ones_like(rank))


SCHEDULE = DualPipe()
