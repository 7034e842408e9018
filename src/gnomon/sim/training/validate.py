"""Refuses task lists that a pipeline cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnomon.errors import InputError
from gnomon.sim.training.base import KINDS, Kind, Orders, Task, check_sizes
from gnomon.sim.training.placement import LOOP, ModelChunk, Placement, Route, route

Event = tuple[str, ModelChunk, int]
"""F or B (or its half by input), model chunk, micro-batch: what has ended when a task may start."""


def validate(lists: Orders, pp: int, vp: int, micros: int, placement: Placement = LOOP) -> None:
    """Raise InputError for the first violation.

    Every rank runs the forward and the backward of every micro-batch through each of its chunks exactly once, the
    backward, or its half by input and later that by weight, after the forward; and no ranks deadlock.
    """
    check_sizes(pp, vp, micros)
    if len(lists) != pp:
        raise InputError(f"there are {len(lists)} lists of tasks for {pp} ranks", where="schedule")
    chunks, each = placement.stages(pp, vp).shape[1], micros // placement.copies
    for rank, tasks in enumerate(lists):
        _check_tasks(rank, tasks, chunks, each)
    _check_progress(lists, route(placement, pp, vp))


def _check_tasks(rank: int, tasks: Sequence[Task], vp: int, micros: int) -> None:
    seen: set[Task] = set()
    for place, task in enumerate(tasks):
        if task.kind not in KINDS or task.chunk not in range(vp) or task.micro not in range(micros):
            raise _violation(rank, place, f"{tuple(task[:3])} is not a task of {vp} chunks and {micros} micro-batches")
        plain = task._replace(overlapped=False)
        if plain in seen:
            raise _violation(rank, place, f"{_described(task)} is given twice")
        if task.overlapped and (
            task.kind != "F" or not any(after.kind in "BI" for after in tasks[place + 1 : place + 2])
        ):
            raise _violation(rank, place, f"{_described(task)} does not overlap with a backward")
        for before in _before(task):
            if before not in seen:
                raise _violation(rank, place, f"{_described(task)} comes before its {KINDS[before.kind]}")
        _check_whole(rank, place, task, seen)
        seen.add(plain)
    for micro in range(micros):
        for chunk in range(vp):
            for kind in _missing(chunk, micro, seen):
                raise _violation(rank, len(tasks), f"{_described(Task(kind, chunk, micro))} is missing")


def _before(task: Task) -> Iterator[Task]:
    if task.kind in "BI":
        yield Task("F", task.chunk, task.micro)
    if task.kind == "W":
        yield Task("I", task.chunk, task.micro)


def _check_whole(rank: int, place: int, task: Task, seen: set[Task]) -> None:
    """A backward is either whole or in halves."""
    other: Kind = "I" if task.kind == "B" else "B"
    if task.kind in "BI" and Task(other, task.chunk, task.micro) in seen:
        raise _violation(rank, place, f"{_described(task)} is given twice")


def _missing(chunk: int, micro: int, seen: set[Task]) -> Iterator[Kind]:
    halves = Task("I", chunk, micro) in seen
    kinds: tuple[Kind, ...] = ("F", "W") if halves else ("F", "B")
    yield from (kind for kind in kinds if Task(kind, chunk, micro) not in seen)


def _check_progress(lists: Orders, way: Route) -> None:
    """Run every rank as far as it comes, again whenever what it waits for has ended."""
    ended: set[Event] = set()
    waiting: dict[Event, list[int]] = {}
    places = [0] * len(lists)
    ready = list(range(len(lists)))
    while ready:
        rank = ready.pop()
        while places[rank] < len(lists[rank]):
            # Two tasks that overlap start together.
            first = lists[rank][places[rank]]
            group = lists[rank][places[rank] : places[rank] + 1 + first.overlapped]
            need = next((need for task in group if (need := _need(task, rank, way)) and need not in ended), None)
            if need is not None:
                waiting.setdefault(need, []).append(rank)
                break
            places[rank] += len(group)
            for task in group:
                event = ("F" if task.kind == "F" else "B", ModelChunk(rank, task.chunk), task.micro)
                if task.kind != "W":
                    ended.add(event)
                    ready += waiting.pop(event, ())
    if waiting:
        need, (rank, *_) = min(waiting.items(), key=lambda item: item[1])
        task = lists[rank][places[rank]]
        what = Task("F" if need[0] == "F" else "B", need[1].chunk, need[2])
        raise _violation(
            rank, places[rank], f"{_described(task)} deadlocks waiting for {_described(what)} on rank {need[1].rank}"
        )


def _need(task: Task, rank: int, way: Route) -> Event | None:
    """What the task waits for on another rank, or on its own where the network turns."""
    spot = ModelChunk(rank, task.chunk)
    if task.kind == "W":
        return None
    if task.kind == "F":
        before = way.before[spot]
        return ("F", before, task.micro) if before else None
    after = way.after[spot]
    return ("B", after, task.micro) if after else ("F", spot, task.micro)


def _described(task: Task) -> str:
    return f"the {KINDS[task.kind]} of micro-batch {task.micro} through chunk {task.chunk}"


def _violation(rank: int, place: int, what: str) -> InputError:
    return InputError(what, where=f"rank {rank}, task {place}")
