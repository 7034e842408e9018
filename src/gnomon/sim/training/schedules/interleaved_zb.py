"""Interleaved zero bubble, as torch.distributed.pipelining runs it: ZB-H1 (arXiv:2401.10241) with several chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Schedule, Task
from gnomon.sim.training.orders import split_order


class InterleavedZeroBubble(Schedule):
    name = "interleaved-zb"
    place = 8
    splits_backward = True
    ends_on_first = False
    chunks = (2, None)

    def multiple(self, pp: Counts) -> Any:
        return pp

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        """Half as many forwards ahead as without split backwards, since those by input come back sooner."""
        self.check(pp, vp, micros)
        return [
            split_order(micros, warm_ups=vp * pp - 1 - rank, later=rank, round_of=pp, chunks=vp) for rank in range(pp)
        ]

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        return np.minimum(np.multiply(vp, pp), np.multiply(vp, micros)) + np.zeros_like(rank)

    def heads(self, pp: Counts, vp: Counts, micros: Counts) -> Any:
        """The last rank does the weights of its head late, too."""
        return np.minimum(micros, pp)


SCHEDULE = InterleavedZeroBubble()
