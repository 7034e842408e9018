"""Tasks beside the passes of a step: copies between chip and host, and reductions and gathers pass by pass.

A side task accompanies a pass, part by part where passes are cut into parts, and runs in a lane of its rank. It begins
after its part of the pass, or the part waits for it; what it moves is on the chip from the part to the end of the task,
or from the start of the task to the end of the part, and only so much of that at once as there is room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gnomon.errors import InputError
from gnomon.sim.training.base import Orders, Schedule, Task
from gnomon.sim.training.placement import Ints
from gnomon.spec.workload import Floats

COPY_OUT, COPY_IN, REDUCE, GATHER = SIDE = ("copy out", "copy in", "reduce", "gather")
"""Of the chip to the host and back, of gradients and of weights."""
PERIODS = 4
"""After so many rounds of micro-batches a schedule repeats itself."""
ROUNDING = 1e-9
"""By how much bytes that are added and taken away again may be off."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideTask:
    """Seconds and bytes are of a whole pass through a chunk, [pp, chunks]; one number stands for all."""

    name: str
    """One of `SIDE`, which says its lane. A lane runs one task at a time, in the order of the passes."""
    seconds: Floats | float
    bytes: Floats | float = 0.0
    """On the chip."""
    after: str = ""
    """F or B: the pass that it begins after."""
    before: str = ""
    """F or B: the pass that waits for it. It has either of the two."""
    follows: bool = False
    """Whether it begins only when the task before it in the list, of the same part of the same micro-batch, has
    ended."""
    shared: int = 1
    """Neighbouring ranks that have one lane together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideTasks:
    """Side tasks with room of their own on the chip."""

    tasks: tuple[SideTask, ...]
    limit_bytes: Floats | float = np.inf
    """Bytes of theirs that a rank's chip holds at once, [pp]."""
    parts: int = 1
    """Parts that passes are cut into."""
    apart: int = 0
    """Parts that lie between the forward and the backward of what they accompany, at least; what is needed sooner
    stays as it is."""


class PassPart(NamedTuple):
    """A part of a pass: of a backward the first is the last of its forward."""

    place: int
    """Of the task in its rank's list."""
    piece: int
    """Of the forward, also in a backward."""


def check_side(side: Sequence[SideTasks], orders: Orders, shape: tuple[int, int]) -> None:
    """Raise InputError for what no step can have, or has no room for."""
    if len({group.parts for group in side}) > 1:
        raise InputError("passes are cut into different numbers of parts", where="side", hint="Give one number.")
    for group in side:
        if group.parts < 1 or group.apart < 0 or not group.tasks:
            raise InputError("side tasks have 1 part or more", where="side", hint="Give a whole number.")
        for place, one in enumerate(group.tasks):
            _check_task(one, group.tasks[place - 1] if place else None, shape)
        limit = np.broadcast_to(group.limit_bytes, shape[:1])
        for rank, tasks in enumerate(orders):
            least = least_bytes(group, tasks, rank, shape)
            if limit[rank] < least * (1 - ROUNDING):
                message = f"room for {float(limit[rank]):.6g} bytes is less than the {least:.6g} that rank {rank} needs"
                raise InputError(message, where="side", hint="Give more room, or cut passes into more parts.")


def _check_task(one: SideTask, before: SideTask | None, shape: tuple[int, int]) -> None:
    if one.name not in SIDE or {one.after, one.before} not in ({"F", ""}, {"B", ""}) or one.shared < 1:
        message = f"{one.name} after '{one.after}' and before '{one.before}' is no side task"
        raise InputError(message, where="side", hint=f"It is one of {', '.join(SIDE)}, after or before F or B.")
    if one.follows:
        ways = () if before is None else ((before.after, before.before), ("F" if one.before == "B" else "", ""))
        if (one.after, one.before) not in ways and (not ways or ways[0] != ways[1]):
            raise InputError(f"{one.name} cannot follow the task before it", where="side", hint="List it after that.")
    for name in ("seconds", "bytes"):
        values = np.asarray(getattr(one, name), float)
        if values.shape not in (shape, ()) or not (np.isfinite(values) & (values >= 0)).all():
            message = f"{one.name} has {name} of shape {values.shape}"
            raise InputError(message, where="side", hint=f"They are 0 or more, of shape {shape}.")


def accompanied(tasks: Sequence[Task], parts: int, apart: int) -> set[tuple[int, int, int]]:
    """Chunk, micro-batch and piece of what lies far enough apart."""
    order = list(parts_of(tasks, parts))
    at = {(tasks[part.place].kind, tasks[part.place].chunk, tasks[part.place].micro, part.piece): number
          for number, part in enumerate(order)}  # fmt: skip
    found = set()
    for (kind, chunk, micro, piece), number in at.items():
        if kind == "F":
            back = at.get(("B", chunk, micro, piece), at.get(("I", chunk, micro, piece), number))
            if back - number - 1 >= apart:
                found.add((chunk, micro, piece))
    return found


def parts_of(tasks: Sequence[Task], parts: int) -> Iterator[PassPart]:
    """Parts in the order that a rank runs them; of two tasks that overlap in turn."""
    place = 0
    while place < len(tasks):
        together = range(place, place + 1 + tasks[place].overlapped)
        for step in range(parts):
            for one in together:
                yield PassPart(one, step if tasks[one].kind == "F" else parts - 1 - step)
        place = together.stop


def spread(group: SideTasks, shape: tuple[int, ...]) -> SideTasks:
    """The same with a number for every chunk and every rank."""

    def each(values: Floats | float) -> Floats:
        return np.broadcast_to(np.asarray(values, float), shape)

    tasks = (replace(one, seconds=each(one.seconds), bytes=each(one.bytes)) for one in group.tasks)
    return replace(group, tasks=tuple(tasks), limit_bytes=np.broadcast_to(group.limit_bytes, shape[:1]))


def room_by_kind(group: SideTasks, rank: int) -> dict[str, list[float]]:
    """Bytes that there must be before a part of a pass starts, by its kind and its chunk."""
    found, none = {}, np.zeros(np.shape(group.tasks[0].bytes)[1:])
    for kind, pass_of in (("F", "F"), ("B", "B"), ("I", "B")):
        each = [np.asarray(one.bytes)[rank] for one in group.tasks if pass_of in (one.after, one.before)]
        found[kind] = (sum(each, none) / group.parts).tolist()
    return found


def begins(one: SideTask, kind: str) -> bool:
    """Whether a side task belongs to a task of the list; a backward may be in halves."""
    return ends_with(one.after, kind) if one.after else kind == "F" if one.before == "F" else kind in "BI"


def ends_with(pass_of: str, kind: str) -> bool:
    """Whether a pass, F or B, ends with a task of the list."""
    return kind == "F" if pass_of == "F" else kind in "BW"


def least_bytes(group: SideTasks, tasks: Sequence[Task], rank: int, shape: tuple[int, int]) -> float:
    """Room without which a rank could not go on: of a part, with the one that it overlaps with, beside backwards by
    input whose halves by weight are still to come."""
    rooms = room_by_kind(spread(group, shape), rank)
    near = accompanied(tasks, group.parts, group.apart)
    open_bytes = most = beside = 0.0
    for part in parts_of(tasks, group.parts):
        task = tasks[part.place]
        kept = (task.chunk, task.micro, part.piece) in near
        own = rooms["I" if task.kind == "W" else task.kind][task.chunk] * kept
        if task.kind == "W":
            open_bytes -= own
            continue
        most = max(most, open_bytes + own + beside)
        beside = own if task.overlapped else 0.0
        open_bytes += own if task.kind == "I" else 0.0
    return most


@lru_cache(maxsize=4096)
def passes_accompanied(chosen: Schedule, sizes: tuple[int, int, int], rank: int, parts: int, apart: int) -> Ints:
    """Parts of passes through each chunk of a rank that side tasks accompany, at least: of so many ranks, chunks and
    micro-batches. A schedule repeats itself, so those of a long step are counted on from a shorter one."""
    pp, vp, micros = sizes
    each = micros // chosen.placement.copies
    if not apart:
        return np.full(chosen.placement.stages(pp, vp).shape[1], each * parts)
    round_of = max(int(chosen.multiple(pp)), 1)
    short = -(-max(PERIODS * pp, int(chosen.fewest(pp))) // round_of) * round_of
    if micros <= short + round_of:
        return _counted(chosen, (pp, vp, micros), rank, parts, apart)
    one, two = (_counted(chosen, (pp, vp, count), rank, parts, apart) for count in (short, short + round_of))
    found = one + (two - one) * ((micros - short) // round_of)
    return np.minimum(found, each * parts)


def _counted(chosen: Schedule, sizes: tuple[int, int, int], rank: int, parts: int, apart: int) -> Ints:
    pp, vp, micros = sizes
    found = np.zeros(chosen.placement.stages(pp, vp).shape[1], np.int64)
    for chunk, _, _ in accompanied(chosen.tasks(pp, vp, micros)[rank], parts, apart):
        found[chunk] += 1
    return found
