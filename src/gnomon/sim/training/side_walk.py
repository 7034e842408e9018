"""When each pass of a pipeline starts where tasks run beside it and no ranks have a lane together: `walk`, with the
side tasks of a rank in the order of its passes.

What a lane does, and which bytes are on the chip, follows from the passes before; so a rank is walked once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gnomon.sim.training.base import LANES, Orders, Task
from gnomon.sim.training.placement import ModelChunk, Placement, Route, route
from gnomon.sim.training.side import ROUNDING, SideTasks, accompanied, begins, ends_with, room_by_kind, spread
from gnomon.sim.training.times import StepTimes
from gnomon.sim.training.walk import Arrivals, Column, SideSpan, Walked, outputs_of, swept, unsent

Key = tuple[int, int, int, int]
"""A side task of a group by its number, and the chunk, the micro-batch and the piece that it is of."""


@dataclass(slots=True, eq=False)
class _Room:
    """Bytes of a group on the chip: parts get theirs in their order, each as soon as there is room."""

    limit: float
    taken: float = 0.0
    most: float = 0.0
    given_s: float = 0.0
    freed: list[tuple[float, float]] = field(default_factory=list)
    """Times and bytes."""

    def give(self, need: float) -> float:
        while self.freed and (self.freed[0][0] <= self.given_s or self.taken + need > self.limit * (1 + ROUNDING)):
            at, size = heapq.heappop(self.freed)
            self.taken -= size
            self.given_s = max(self.given_s, at)
        self.taken += need
        self.most = max(self.most, self.taken)
        return self.given_s


class _Pass(NamedTuple):
    """Side tasks of one kind of pass through one chunk: number, lane, seconds, bytes and whether it follows another."""

    need: float
    before: list[tuple[int, str, float, bool]]
    after: list[tuple[int, str, float, float, bool]]
    closed: float
    """Bytes of what such a pass waited for, which its end gives back."""


class _Group:
    """A group of side tasks on one rank."""

    def __init__(self, group: SideTasks, rank: int, tasks: Sequence[Task]) -> None:
        self.room = _Room(float(np.asarray(group.limit_bytes)[rank]))
        self.near = accompanied(tasks, group.parts, group.apart)
        self.known: dict[Key, float] = {}
        """When side tasks ended that others may follow."""
        needs, chunks = room_by_kind(group, rank), np.asarray(group.tasks[0].seconds).shape[1]
        self.passes: dict[tuple[str, int], _Pass] = {}
        for kind in "FBIW":
            for chunk in range(chunks):
                found = _Pass(needs[kind][chunk] if kind != "W" else 0.0, [], [], 0.0)
                for number, one in enumerate(group.tasks):
                    seconds, size = (
                        float(each[rank, chunk]) / group.parts for each in map(np.asarray, (one.seconds, one.bytes))
                    )
                    if one.before and ends_with(one.before, kind):
                        found = found._replace(closed=found.closed + size)
                    if begins(one, kind) and one.before:
                        found.before.append((number, LANES[one.name], seconds, one.follows))
                    elif begins(one, kind):
                        found.after.append((number, LANES[one.name], seconds, size, one.follows))
                self.passes[kind, chunk] = found
        self.names = [one.name for one in group.tasks]


@dataclass(slots=True, eq=False)
class _Line:
    """What a rank has run."""

    rank: int
    parts: int
    groups: list[_Group]
    starts: Column = field(default_factory=list)
    ends: Column = field(default_factory=list)
    side: list[SideSpan] = field(default_factory=list)
    lanes: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LANES.values(), 0.0))

    def accompanied(self, unit: Sequence[Task], step: int) -> Iterator[tuple[_Group, _Pass, Task, int]]:
        for group in self.groups:
            for task in unit:
                piece = step if task.kind == "F" else self.parts - 1 - step
                if (task.chunk, task.micro, piece) in group.near:
                    yield group, group.passes[task.kind, task.chunk], task, piece

    def before(self, unit: Sequence[Task], step: int, start_s: float) -> float:
        """When a part of a pass may start, with room and with what it waits for."""
        for group in self.groups:
            mine = [found for found in self.accompanied(unit, step) if found[0] is group]
            if not mine:
                continue
            given = group.room.give(sum(found.need for _, found, _, _ in mine))
            start_s = max(start_s, given)
            for _, found, task, piece in mine:
                for number, lane, seconds, follows in found.before:
                    ready = given
                    if follows:
                        ready = max(given, group.known[number - 1, task.chunk, task.micro, piece])
                    start_s = max(start_s, self.run(group, number, lane, seconds, ready, task, piece))
        return start_s

    def after(self, unit: Sequence[Task], step: int, end_s: float) -> None:
        """What begins once a part of a pass has ended, and what that gives back."""
        for group, found, task, piece in self.accompanied(unit, step):
            if found.closed:
                heapq.heappush(group.room.freed, (end_s, found.closed))
            for number, lane, seconds, size, follows in found.after:
                ready = end_s
                if follows:
                    ready = max(end_s, group.known[number - 1, task.chunk, task.micro, piece])
                heapq.heappush(group.room.freed, (self.run(group, number, lane, seconds, ready, task, piece), size))

    def run(
        self, group: _Group, number: int, lane: str, seconds: float, ready_s: float, task: Task, piece: int
    ) -> float:  # fmt: skip
        """One side task, after those before it in its lane; when it ends."""
        start = max(self.lanes[lane], ready_s)
        end = self.lanes[lane] = group.known[number, task.chunk, task.micro, piece] = start + seconds
        self.side.append(SideSpan(group.names[number], self.rank, task.chunk, task.micro, start, end))
        return end


def walk_with_side(orders: Orders, times: StepTimes, micros: int, placement: Placement) -> Walked:
    """Starts and ends of all passes and side tasks. The orders must be valid, and the side tasks checked."""
    way = route(placement, times.pp, times.vp)
    arrivals, parts = unsent(way, micros), times.side[0].parts
    side = [spread(group, times.forward_s.shape) for group in times.side]
    lines = [_Line(rank, parts, [_Group(group, rank, tasks) for group in side]) for rank, tasks in enumerate(orders)]
    swept([_rank(line, tasks, times, arrivals, way) for line, tasks in zip(lines, orders, strict=True)],
          lambda: sum(len(line.ends) for line in lines))  # fmt: skip
    spans = tuple(span for line in lines for span in line.side)
    held = [[group.room.most for group in line.groups] for line in lines]
    starts, ends = ([getattr(line, name) for line in lines] for name in ("starts", "ends"))
    return Walked(starts, *arrivals, way, ends=ends, side=spans, held_bytes=held)


def _rank(
    line: _Line, tasks: Sequence[Task], times: StepTimes, arrivals: tuple[Arrivals, Arrivals], way: Route
) -> Iterator[None]:
    """The walk of one rank; it yields when it has to wait for another."""
    rank, parts, lasts = line.rank, line.parts, times.of_rank(line.rank)
    outputs, links, free = outputs_of(rank, times, arrivals, way), [0.0, 0.0], 0.0
    queue = iter(tasks)
    for first in queue:
        unit = (first, next(queue)) if first.overlapped else (first,)
        seconds, start = sum(lasts[one.kind][one.chunk] for one in unit), free
        seconds -= lasts["overlapped"][first.chunk] if first.overlapped else 0.0
        for one in unit:
            if one.kind != "W":
                inbox = arrivals[one.kind != "F"][ModelChunk(rank, one.chunk)]
                while (at := inbox[one.micro]) < 0:
                    yield
                start = max(start, at)
        anchor, anchored = start, 0
        for step in range(parts):
            begin = line.before(unit, step, start if not step else free)
            if not step or begin > free:
                anchor, anchored = begin, step
            if not step:
                line.starts += [begin] * len(unit)
            free = anchor + seconds * ((step + 1 - anchored) / parts)
            line.after(unit, step, free)
        line.ends += [free] * len(unit)
        for one in unit:
            if one.kind == "W":
                continue
            there, send, which = outputs[one.kind][one.chunk]
            if send and times.blocking:
                free += send
                there[one.micro] = free
            else:
                there[one.micro] = max(free, links[which] if send else 0.0) + send
                links[which] = there[one.micro] if send else links[which]
