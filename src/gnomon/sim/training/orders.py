"""Orders of tasks that several schedules share."""

from __future__ import annotations

from typing import cast

from gnomon.sim.training.base import Kind, Task


def split_order(micros: int, warm_ups: int, later: int, round_of: int = 0, chunks: int = 1) -> list[Task]:
    """Split backwards: `warm_ups` forwards; then a forward and a backward by input alternately, and after each the
    backward by weight of what went back `later` before it. Chunks rotate every `round_of` micro-batches."""
    forwards = in_rounds("F", micros, round_of or micros, range(chunks))
    backwards = in_rounds("I", micros, round_of or micros, range(chunks)[::-1])
    ahead = min(warm_ups, len(forwards))
    found = forwards[:ahead]
    for place, task in enumerate(backwards):
        found += forwards[ahead + place : ahead + place + 1]
        found.append(task)
        if place >= later:
            found.append(backwards[place - later]._replace(kind="W"))
    return found + [task._replace(kind="W") for task in backwards[max(0, len(backwards) - later) :]]


def in_rounds(kind: Kind, micros: int, round_of: int, chunks: range) -> list[Task]:
    """So many micro-batches through each chunk, then the next ones."""
    return [
        Task(kind, chunk, micro)
        for first in range(0, micros, round_of)
        for chunk in chunks
        for micro in range(first, first + round_of)
    ]


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

    def together(self, forward: int, backward: int) -> TaskList:
        """A forward through one chunk that overlaps with a whole backward through another."""
        self._add("F", forward, overlapped=True)
        self._add("B", backward)
        return self

    def late(self) -> TaskList:
        """The half by weight of the first backward that has had only the other half."""
        waiting = [task for task in self.tasks if task.kind == "I"][sum(task.kind == "W" for task in self.tasks)]
        self._counts["W", waiting.chunk] = self.count("W", waiting.chunk) + 1
        self.tasks.append(Task("W", waiting.chunk, waiting.micro))
        return self

    def _add(self, kind: str, chunk: int, overlapped: bool = False) -> None:
        halves = ("I", "W") if kind == "B" else (kind,)
        micro = self.count(halves[0], chunk)
        self._counts |= {(half, chunk): self.count(half, chunk) + 1 for half in halves}
        self.tasks.append(Task(cast(Kind, kind), chunk, micro, overlapped))


def dual_order(near: int, far: int, half: int, place: int, micros: int) -> list[Task]:
    """DualPipe's order on rank `place` of `half`, the last of which is where the two directions meet. Micro-batches of
    the `near` chunk come in at the first of these ranks, those of the `far` one have been through all others before."""
    made, beyond = TaskList(), half - 1 - place
    made.run("F", near, times=2 * beyond)
    for _ in range(place + 1):
        made.run("F", near).run("F", far)
    for _ in range(beyond):
        made.run("IWF", far)
    for turn in range(micros - 2 * half + place + 1):
        if turn == 0 and not beyond:  # nothing to overlap with yet where the directions meet
            made.run("F", near).run("B", far)
        else:
            made.together(near, far)
        made.together(far, near)
    for _ in range(beyond):
        made.run("B", far).together(far, near)
    # The second half of what is left is split, so that the other direction waits less.
    pairs = [(kind, chunk) for _ in range(place + 1) for kind, chunk in (("B", far), ("B", near))]
    whole = 2 * ((place + 1) // 2) + (place % 2 == 0)
    for number, (kind, chunk) in enumerate(pairs):
        made.run(kind if number < whole else "I", chunk)
    for _ in range(beyond):
        made.late().run("I", near)
    for _ in range(place + 1):
        made.late()
    return made.tasks
