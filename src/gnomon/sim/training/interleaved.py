"""Interleaved 1F1B (Narayanan et al. 2021, section 2.2): every rank alternates between several chunks."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from gnomon.errors import InputError
from gnomon.sim.training.base import Counts, Task, check_sizes, in_order


class Interleaved:
    """As Megatron-LM and torch.distributed.pipelining run it, the chunks rotating every `pp` micro-batches."""

    name = "interleaved"

    def check(self, pp: int, vp: int, micros: int) -> None:
        check_sizes(pp, vp, micros)
        if pp < 2:
            raise InputError(
                "the schedule interleaved needs a pipeline, and pp is 1", where="pp", hint="Set pp to 2 or more."
            )
        if vp < 2:
            raise InputError(
                "the schedule interleaved needs several model chunks per rank, and vp is 1",
                where="vp",
                hint="Set vp to 2 or more, or use the schedule 1f1b.",
            )
        if micros % pp:
            below = micros - micros % pp
            near = f"{below} or {below + pp}" if below else f"{pp}"
            raise InputError(
                f"the schedule interleaved needs a multiple of pp ({pp}) micro-batches, not {micros}",
                where="micro-batches",
                hint=f"Nearest: {near}.",
            )

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        self.check(pp, vp, micros)
        chunks = range(vp)
        forwards = _rounds("F", pp, chunks, micros)
        backwards = _rounds("B", pp, chunks[::-1], micros)
        return [in_order(forwards, backwards, _warm_ups(pp, vp, micros, rank)) for rank in range(pp)]

    def held(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        """The warm-up and the forward after it."""
        pp, vp, rank = (np.asarray(size, np.int64) for size in (pp, vp, rank))
        return np.minimum((vp - 1) * pp + 2 * (pp - 1 - rank) + 1, vp * micros)


def _warm_ups(pp: int, vp: int, micros: int, rank: int) -> int:
    return min((vp - 1) * pp + 2 * (pp - 1 - rank), vp * micros)


def _rounds(kind: Literal["F", "B"], pp: int, chunks: range, micros: int) -> list[Task]:
    """`pp` micro-batches through each chunk, then the next `pp`."""
    return [
        Task(kind, chunk, micro)
        for first in range(0, micros, pp)
        for chunk in chunks
        for micro in range(first, first + pp)
    ]
