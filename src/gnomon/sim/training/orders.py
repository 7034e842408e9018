"""Orders of tasks that several schedules share."""

from __future__ import annotations

from typing import cast

from gnomon.sim.training.base import Kind, Task


def split_order(micros: int, warm_ups: int, later: int) -> list[Task]:
    """One chunk with split backwards: `warm_ups` forwards; then a forward and a backward by input alternately, and
    after each the backward by weight of the micro-batch `later` before it."""
    ahead = min(warm_ups, micros)
    found = [Task("F", 0, micro) for micro in range(ahead)]
    for micro in range(micros):
        if micro + ahead < micros:
            found.append(Task("F", 0, micro + ahead))
        found.append(Task("I", 0, micro))
        if micro >= later:
            found.append(Task("W", 0, micro - later))
    return [*found, *(Task("W", 0, micro) for micro in range(max(0, micros - later), micros))]


class TaskList:
    """The tasks of a rank as they are added, each kind through each chunk in the order of the micro-batches."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self._counts: dict[tuple[str, int], int] = {}

    def count(self, kind: str, chunk: int) -> int:
        """How many of a kind have gone through a chunk. A whole backward counts as both of its halves."""
        return self._counts.get((kind, chunk), 0)

    def run(self, kinds: str, chunk: int, times: int = 1) -> TaskList:
        """The next micro-batch through a chunk, one kind after the other, so many times."""
        for _ in range(times):
            for kind in kinds:
                self._add(kind, chunk)
        return self

    def _add(self, kind: str, chunk: int, overlapped: bool = False) -> None:
        halves = ("I", "W") if kind == "B" else (kind,)
        micro = self.count(halves[0], chunk)
        self._counts |= {(half, chunk): self.count(half, chunk) + 1 for half in halves}
        self.tasks.append(Task(cast(Kind, kind), chunk, micro, overlapped))
