"""When each pass of a pipeline starts where tasks run beside it: events in order of time.

Passes, transfers and their order are those of `walk`; a part of a pass also waits for the side tasks that it needs and
for room on the chip, which is given out in the order of the parts. Where ranks have lanes together, which of them is
served depends on time; else `side_walk` does the same faster.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gnomon.errors import InputError
from gnomon.sim.training.base import LANES, Orders, Task
from gnomon.sim.training.placement import ModelChunk, Placement, route
from gnomon.sim.training.side import (
    ROUNDING,
    SideTask,
    SideTasks,
    accompanied,
    begins,
    check_side,
    ends_with,
    room_by_kind,
    spread,
)
from gnomon.sim.training.side_walk import walk_with_side
from gnomon.sim.training.times import StepTimes
from gnomon.sim.training.walk import NOT_YET, SideSpan, Walked, outputs_of, unsent

LaneKey = tuple[str, int]
"""What runs in it, and the first of the ranks that have it together, over how many they are."""
Step = tuple[int, int]
"""A unit of a rank, and which of its parts."""
Event = Callable[[], None]


@dataclass(slots=True, eq=False)
class _Side:
    """A side task of one part of a pass."""

    span: SideSpan
    lane: LaneKey
    turn: tuple[int, bool]
    """In its lane: by its part, and what the part waits for before what begins after it."""
    seconds: float
    waits_for: int = 1
    """Of its pass or of room for it, and of the task that it follows, those that are still to come."""
    ready_s: float = 0.0
    then: list[Event] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Room:
    """Of one group of side tasks on one rank: what is taken of its limit, and how many parts have got theirs."""

    limit: float
    needs: list[float] = field(default_factory=list)
    side: list[list[_Side]] = field(default_factory=list)
    """Tasks that may begin once a part has its room."""
    taken: float = 0.0
    most: float = 0.0
    given: int = 0


@dataclass(slots=True, eq=False)
class _Lane:
    queues: dict[int, deque[_Side]] = field(default_factory=dict)
    running: bool = False


class _Rank:
    """The passes of a rank in units, each of a task or of two that overlap, cut into parts."""

    def __init__(self, tasks: Sequence[Task], lasts: dict[str, list[float]]) -> None:
        self.tasks, self.units = tasks, list[tuple[int, ...]]()
        self.seconds = list[float]()
        while (place := self.units[-1][-1] + 1 if self.units else 0) < len(tasks):
            one = tasks[place]
            seconds = lasts[one.kind][one.chunk]
            if one.overlapped:
                other = tasks[place + 1]
                seconds = seconds + lasts[other.kind][other.chunk] - lasts["overlapped"][one.chunk]
            self.units.append((place, place + 1) if one.overlapped else (place,))
            self.seconds.append(seconds)
        self.unit = self.step = 0
        self.running, self.free_s = False, 0.0
        self.anchor_s, self.anchor_step = 0.0, 0
        """When it last began to run without a stop, and at which part."""
        self.starts, self.ends = [NOT_YET] * len(tasks), [NOT_YET] * len(tasks)
        self.links = [0.0, 0.0]
        self.needed: dict[Step, int] = defaultdict(int)
        """Side tasks that a part still waits for."""
        self.after: dict[Step, list[Event]] = defaultdict(list)
        """What happens when a part has ended."""
        self.rooms: list[_Room] = []


class _Run:
    """One step, event by event."""

    def __init__(self, orders: Orders, times: StepTimes, micros: int, placement: Placement) -> None:
        self.times, self.way = times, route(placement, times.pp, times.vp)
        self.parts = times.side[0].parts
        self.arrivals = unsent(self.way, micros)
        self.ranks = [_Rank(tasks, times.of_rank(rank)) for rank, tasks in enumerate(orders)]
        self.outputs = [outputs_of(rank, times, self.arrivals, self.way) for rank in range(len(orders))]
        self.lanes: dict[LaneKey, _Lane] = defaultdict(_Lane)
        self.side: list[SideSpan] = []
        self.events: list[tuple[float, int, Event]] = []
        self.now_s, self.count = 0.0, 0
        self.changed, self.woken = set(range(len(orders))), set[LaneKey]()
        for rank in range(len(orders)):
            for group in times.side:
                self._plan(rank, spread(group, times.forward_s.shape))
        for lane in self.lanes.values():
            lane.queues = {rank: deque(sorted(queue, key=lambda one: one.turn)) for rank, queue in lane.queues.items()}

    def _plan(self, rank: int, group: SideTasks) -> None:
        """The side tasks of a group on a rank, in the order of its passes."""
        own = self.ranks[rank]
        near = accompanied(own.tasks, self.parts, group.apart)
        room, needs = _Room(float(np.asarray(group.limit_bytes)[rank])), room_by_kind(group, rank)
        own.rooms.append(room)
        known: dict[tuple[int, int, int, int], _Side] = {}
        for unit, places in enumerate(own.units):
            for step in range(self.parts):
                room.needs.append(0.0)
                room.side.append([])
                for task in (own.tasks[place] for place in places):
                    piece = step if task.kind == "F" else self.parts - 1 - step
                    if (task.chunk, task.micro, piece) not in near:
                        continue
                    if task.kind != "W":
                        room.needs[-1] += needs[task.kind][task.chunk]
                    for number, one in enumerate(group.tasks):
                        key = (number, task.chunk, task.micro, piece)
                        follows = known[(number - 1, *key[1:])] if one.follows and begins(one, task.kind) else None
                        made = self._accompany(rank, (unit, step), task, one, follows)
                        if made is not None:
                            known[key] = made

    def _accompany(self, rank: int, at: Step, task: Task, one: SideTask, follows: _Side | None) -> _Side | None:
        """A side task of a part of a pass, where the pass is one that it is after or before."""
        own, room = self.ranks[rank], self.ranks[rank].rooms[-1]
        held = float(np.asarray(one.bytes)[rank, task.chunk]) / self.parts
        if one.before and ends_with(one.before, task.kind):
            own.after[at].append(lambda: self._free(rank, room, held))
        if not begins(one, task.kind):
            return None
        seconds = float(np.asarray(one.seconds)[rank, task.chunk]) / self.parts
        span = SideSpan(one.name, rank, task.chunk, task.micro)
        turn = at[0] * self.parts + at[1], bool(one.after)
        made = _Side(span, (LANES[one.name], rank // one.shared), turn, seconds)
        if follows is not None:
            made.waits_for += 1
            follows.then.append(lambda: self._come(made))
        if one.after:
            own.after[at].append(lambda: self._come(made))
            made.then.append(lambda: self._free(rank, room, held))
        else:
            room.side[-1].append(made)
            own.needed[at] += 1
            made.then.append(lambda: self._met(rank, at))
        self.side.append(span)
        self.lanes[made.lane].queues.setdefault(rank, deque()).append(made)
        return made

    def _at(self, time_s: float, event: Event) -> None:
        self.count += 1
        heapq.heappush(self.events, (time_s, self.count, event))

    def _come(self, side: _Side) -> None:
        """Something that a side task waits for has come."""
        side.waits_for -= 1
        if not side.waits_for:
            side.ready_s = self.now_s
            self.woken.add(side.lane)

    def _free(self, rank: int, room: _Room, size: float) -> None:
        room.taken -= size
        self.changed.add(rank)

    def _met(self, rank: int, at: Step) -> None:
        self.ranks[rank].needed[at] -= 1
        self.changed.add(rank)

    def run(self) -> Walked:
        """Whatever can start does, then time goes on to the next event."""
        while True:
            for rank in sorted(self.changed):
                self._give_room(self.ranks[rank])
                self._start(rank)
            self.changed.clear()
            for lane in sorted(self.woken):
                self._serve(lane)
            self.woken.clear()
            if not self.events:
                break
            self.now_s = self.events[0][0]
            while self.events and self.events[0][0] == self.now_s:
                heapq.heappop(self.events)[2]()
        if any(rank.unit < len(rank.units) for rank in self.ranks):
            raise InputError("ranks deadlock: they wait for each other", where="schedule")
        starts, ends = ([getattr(rank, name) for rank in self.ranks] for name in ("starts", "ends"))
        held = [[room.most for room in rank.rooms] for rank in self.ranks]
        return Walked(starts, *self.arrivals, self.way, ends=ends, side=tuple(self.side), held_bytes=held)

    def _give_room(self, own: _Rank) -> None:
        for room in own.rooms:
            while room.given < len(room.needs):
                need = room.needs[room.given]
                if need and room.taken + need > room.limit * (1 + ROUNDING):
                    break
                room.taken += need
                room.most = max(room.most, room.taken)
                for side in room.side[room.given]:
                    self._come(side)
                room.given += 1

    def _start(self, rank: int) -> None:
        """The next part of a pass, where nothing is left that it waits for."""
        own = self.ranks[rank]
        if own.running or own.unit == len(own.units) or own.free_s > self.now_s:
            return
        number = own.unit * self.parts + own.step
        if any(room.given <= number for room in own.rooms) or own.needed[own.unit, own.step]:
            return
        if not own.step:
            tasks = [own.tasks[place] for place in own.units[own.unit]]
            inputs = [self.arrivals[one.kind != "F"][ModelChunk(rank, one.chunk)][one.micro]
                      for one in tasks if one.kind != "W"]  # fmt: skip
            if any(at < 0 or at > self.now_s for at in inputs):
                return
            for place in own.units[own.unit]:
                own.starts[place] = self.now_s
        if not own.step or own.free_s < self.now_s:
            own.anchor_s, own.anchor_step = self.now_s, own.step
        own.running = True
        run, seconds = own.step + 1 - own.anchor_step, own.seconds[own.unit]
        self._at(own.anchor_s + seconds * (run / self.parts), lambda: self._ended(rank))

    def _ended(self, rank: int) -> None:
        """A part of a pass."""
        own = self.ranks[rank]
        own.running, own.free_s = False, self.now_s
        for event in own.after.pop((own.unit, own.step), ()):
            event()
        self.changed.add(rank)
        own.step += 1
        if own.step == self.parts:
            for place in own.units[own.unit]:
                own.ends[place] = self.now_s
                self._send(rank, own.tasks[place])
            own.unit, own.step = own.unit + 1, 0

    def _send(self, rank: int, task: Task) -> None:
        """What a pass gives, to whoever waits for it."""
        if task.kind == "W":
            return
        own, here = self.ranks[rank], ModelChunk(rank, task.chunk)
        there, seconds, which = self.outputs[rank][task.kind][task.chunk]
        target = (self.way.after if task.kind == "F" else self.way.before)[here]
        if not seconds:
            there[task.micro] = self.now_s
        elif self.times.blocking:
            there[task.micro] = own.free_s = own.free_s + seconds
        else:
            there[task.micro] = own.links[which] = max(self.now_s, own.links[which]) + seconds
        to = rank if target is None else target.rank
        self._at(there[task.micro], lambda: self.changed.update((rank, to)))

    def _serve(self, key: LaneKey) -> None:
        """Of the tasks whose turn it is on their rank, the one that has been ready for longest."""
        lane = self.lanes[key]
        heads = [queue[0] for queue in lane.queues.values() if queue and not queue[0].waits_for]
        if lane.running or not heads:
            return
        side = min(heads, key=lambda one: (one.ready_s, one.span.rank))
        lane.queues[side.span.rank].popleft()
        lane.running = True
        side.span.start_s, side.span.end_s = self.now_s, self.now_s + side.seconds

        def ended() -> None:
            lane.running = False
            self.woken.add(key)
            for event in side.then:
                event()

        self._at(side.span.end_s, ended)


def run_with_side(orders: Orders, times: StepTimes, micros: int, placement: Placement) -> Walked:
    """Starts and ends of all passes and side tasks. The orders must be valid."""
    shape = times.forward_s.shape
    check_side(times.side, orders, (shape[0], shape[1]))
    if all(one.shared == 1 for group in times.side for one in group.tasks):
        return walk_with_side(orders, times, micros, placement)
    return _Run(orders, times, micros, placement).run()
