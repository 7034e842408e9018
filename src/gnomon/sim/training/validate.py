"""Refuses task lists that a pipeline cannot run."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.errors import InputError
from gnomon.sim.training.base import Orders, Task, check_sizes

Event = tuple[str, int, int]
"""Forward or backward, virtual stage, micro-batch: what has ended when a task may start."""
NAMES = {"F": "forward", "B": "backward"}


def validate(lists: Orders, pp: int, vp: int, micros: int) -> None:
    """Raise InputError for the first violation.

    Every rank runs the forward and the backward of every micro-batch through each of its chunks exactly once,
    the backward after the forward; and no ranks deadlock.
    """
    check_sizes(pp, vp, micros)
    if len(lists) != pp:
        raise InputError(f"there are {len(lists)} lists of tasks for {pp} ranks", where="schedule")
    for rank, tasks in enumerate(lists):
        _check_tasks(rank, tasks, vp, micros)
    _check_progress(lists, pp, vp)


def _check_tasks(rank: int, tasks: Sequence[Task], vp: int, micros: int) -> None:
    seen: set[Task] = set()
    for place, task in enumerate(tasks):
        if task.kind not in NAMES or task.chunk not in range(vp) or task.micro not in range(micros):
            raise _violation(rank, place, f"{tuple(task)} is not a task of {vp} chunks and {micros} micro-batches")
        if task in seen:
            raise _violation(rank, place, f"{_described(task)} is given twice")
        if task.kind == "B" and Task("F", task.chunk, task.micro) not in seen:
            raise _violation(rank, place, f"{_described(task)} comes before its forward")
        seen.add(task)
    if len(seen) < 2 * vp * micros:
        every = (Task(kind, chunk, micro) for micro in range(micros) for chunk in range(vp) for kind in ("F", "B"))
        missing = next(task for task in every if task not in seen)
        raise _violation(rank, len(tasks), f"{_described(missing)} is missing")


def _check_progress(lists: Orders, pp: int, vp: int) -> None:
    """Run every rank as far as it comes, again whenever what it waits for has ended."""
    ended: set[Event] = set()
    waiting: dict[Event, int] = {}
    places = [0] * pp
    ready = list(range(pp))
    while ready:
        rank = ready.pop()
        for task in lists[rank][places[rank] :]:
            need = _need(task, rank, pp, vp)
            if need is not None and need not in ended:
                waiting[need] = rank
                break
            places[rank] += 1
            event = (task.kind, task.chunk * pp + rank, task.micro)
            ended.add(event)
            if event in waiting:
                ready.append(waiting.pop(event))
    if waiting:
        need, rank = min(waiting.items(), key=lambda item: item[1])
        task = lists[rank][places[rank]]
        what = Task("F" if need[0] == "F" else "B", need[1] // pp, need[2])
        raise _violation(
            rank, places[rank], f"{_described(task)} deadlocks waiting for {_described(what)} on rank {need[1] % pp}"
        )


def _need(task: Task, rank: int, pp: int, vp: int) -> Event | None:
    """What the task waits for on another rank, or on its own where the network turns."""
    stage = task.chunk * pp + rank
    if task.kind == "F":
        return ("F", stage - 1, task.micro) if stage else None
    return ("B", stage + 1, task.micro) if stage + 1 < pp * vp else ("F", stage, task.micro)


def _described(task: Task) -> str:
    return f"the {NAMES[task.kind]} of micro-batch {task.micro} through chunk {task.chunk}"


def _violation(rank: int, place: int, what: str) -> InputError:
    return InputError(what, where=f"rank {rank}, task {place}")
