"""1F1B (PipeDream-Flush, Narayanan et al. 2021): a backward as soon as the last rank can give one."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Task, check_one_chunk, check_sizes, in_order, micro_batches, spread


class OneFOneB:
    """As Megatron-LM and torch.distributed.pipelining run it."""

    name = "1f1b"

    def check(self, pp: int, vp: int, micros: int) -> None:
        check_sizes(pp, vp, micros)
        check_one_chunk(self.name, vp)

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        self.check(pp, vp, micros)
        forwards, backwards = micro_batches("F", micros), micro_batches("B", micros)
        return [in_order(forwards, backwards, min(micros, pp - 1 - rank)) for rank in range(pp)]

    def held(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        return np.minimum(micros, np.subtract(pp, rank))

    def peak_in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts, chunk: Counts) -> Any:
        """One for each rank from here to the last."""
        return spread(np.minimum(micros, np.subtract(pp, rank)), vp, chunk)
