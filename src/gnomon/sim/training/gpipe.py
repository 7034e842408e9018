"""GPipe (Huang et al. 2019): all forwards, then all backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Task, check_one_chunk, check_sizes, in_order, micro_batches, spread


class GPipe:
    name = "gpipe"

    def check(self, pp: int, vp: int, micros: int) -> None:
        check_sizes(pp, vp, micros)
        check_one_chunk(self.name, vp)

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        self.check(pp, vp, micros)
        forwards, backwards = micro_batches("F", micros), micro_batches("B", micros)
        return [in_order(forwards, backwards, micros) for _ in range(pp)]

    def held(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        return np.broadcast_arrays(micros, pp, rank)[0]

    def peak_in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts, chunk: Counts) -> Any:
        """All of them."""
        return spread(micros, pp, vp, rank, chunk)
