"""ZB-V (Qi et al. 2024, arXiv:2401.10241, section 6): zero bubble with the activation memory of 1F1B, in a V.

Each rank holds two chunks, the first on the way down and the second on the way up, so that the rank of the first stage
also has the last: the first backward is there as soon as a micro-batch has been down and up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Schedule, Task
from gnomon.sim.training.orders import TaskList
from gnomon.sim.training.placement import V


class ZeroBubbleV(Schedule):
    name = "zb-v"
    place = 5
    placement = V
    splits_backward = True
    ends_on_first = False
    chunks = (2, 2)

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        """Of fewer micro-batches than fill the pipeline, what is left of the order of enough of them."""
        self.check(pp, vp, micros)
        enough = max(micros, 2 * pp - 1)
        return [[task for task in _order(pp, rank, enough) if task.micro < micros] for rank in range(pp)]

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        """Of both chunks together, when the first backward begins."""
        pp, micros = np.asarray(pp), np.asarray(micros)
        return np.minimum(micros, 2 * pp - 1 - rank) + np.minimum(micros, np.add(rank, 1))


def _order(pp: int, rank: int, micros: int) -> list[Task]:
    made, down, up = TaskList(), 0, 1
    made.run("F", down, times=2 * (pp - rank) - 1)
    for _ in range(rank):
        made.run("F", up).run("F", down)
    for _ in range(pp - rank):
        made.run("FIW", up)
    while made.count("F", up) < micros:
        if made.count("F", down) < micros:
            made.run("F", down)
        made.run("IW", down).run("FIW", up)
    for _ in range(rank):
        made.run("I", down).run("I", up)
    for _ in range(pp - rank):
        made.run("IW", down)
    made.run("W", up, times=micros - made.count("W", up))
    made.run("W", down, times=micros - made.count("W", down))
    return made.tasks


SCHEDULE = ZeroBubbleV()
