"""The contract of a pipeline schedule, and the shape that all of them share.

A rank holds `vp` parts ("chunks") of the network; chunk `c` of rank `r` is virtual stage `c * pp + r`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError

Ints = NDArray[np.int64]
Counts = int | Ints
"""One number of ranks, chunks or micro-batches, or an array of them."""


class Task(NamedTuple):
    """The forward or the backward of one micro-batch through one chunk."""

    kind: Literal["F", "B"]
    chunk: int
    micro: int


Orders = Sequence[Sequence[Task]]
"""The tasks of each rank, in the order it runs them."""


class Schedule(Protocol):
    """The order in which every rank of a pipeline runs its tasks. Knows nothing of time."""

    @property
    def name(self) -> str: ...

    def check(self, pp: int, vp: int, micros: int) -> None:
        """Raise InputError, with the nearest sizes that work, where the schedule does not exist."""

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        """The tasks of each rank in order. The sizes must pass `check`."""

    def held(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        """Most passes that a rank holds at once over all its chunks: forward begun, backward not yet ended."""


def check_sizes(pp: int, vp: int, micros: int) -> None:
    for name, size in (("pp", pp), ("vp", vp), ("micro-batches", micros)):
        if size < 1:
            raise InputError(f"{size} is not a valid pipeline size", where=name, hint="It is at least 1.")


def check_one_chunk(name: str, vp: int) -> None:
    if vp != 1:
        raise InputError(
            f"the schedule {name} has one model chunk per rank, not {vp}",
            where="vp",
            hint="Set vp to 1, or use the schedule interleaved.",
        )


def in_order(forwards: list[Task], backwards: list[Task], warm_ups: int) -> list[Task]:
    """The warm-up forwards; then one forward and one backward alternately; then the remaining backwards."""
    pairs = len(forwards) - warm_ups
    paired: list[Task] = forwards[:pairs] * 2
    paired[::2] = forwards[warm_ups:]
    paired[1::2] = backwards[:pairs]
    return [*forwards[:warm_ups], *paired, *backwards[pairs:]]


def micro_batches(kind: Literal["F", "B"], micros: int) -> list[Task]:
    return [Task(kind, 0, micro) for micro in range(micros)]
