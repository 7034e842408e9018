"""1F1B (PipeDream-Flush, Narayanan et al. 2021) and GPipe (Huang et al. 2019): one chunk of the network per rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Task, check_one_chunk, check_sizes, in_order, micro_batches


class OneFOneB:
    """A backward as soon as the last rank can give one, as Megatron-LM and torch.distributed.pipelining run it."""

    name = "1f1b"

    def check(self, pp: int, vp: int, micros: int) -> None:
        check_sizes(pp, vp, micros)
        check_one_chunk(self.name, vp)

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        self.check(pp, vp, micros)
        forwards, backwards = micro_batches("F", micros), micro_batches("B", micros)
        return [in_order(forwards, backwards, self._warm_ups(pp, micros, rank)) for rank in range(pp)]

    def _warm_ups(self, pp: int, micros: int, rank: int) -> int:
        return min(micros, pp - 1 - rank)

    def held(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        """One for each rank from here to the last."""
        return np.minimum(micros, np.subtract(pp, rank))


class GPipe(OneFOneB):
    """All forwards, then all backwards."""

    name = "gpipe"

    def _warm_ups(self, pp: int, micros: int, rank: int) -> int:
        return micros

    def held(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        return np.broadcast_arrays(micros, pp, rank)[0]
