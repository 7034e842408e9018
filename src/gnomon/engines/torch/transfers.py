"""Lists of tasks with their sends and receives: what each pipeline rank does, one thing after another. Knows no torch.

Both ends of every pair of ranks have their transfers in the same order, which NCCL needs and Gloo too: a send and its
receive are added to the two lists at once, while the tasks of all ranks are walked through together.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gnomon.sim.training import Schedule, Task
from gnomon.sim.training.placement import ModelChunk, Route, route


class Transfer(NamedTuple):
    """Activations (F) or gradients (B) of a micro-batch between this rank and another."""

    way: Literal["send", "receive"]
    kind: Literal["F", "B"]
    chunk: int
    """Of this rank: whose output is sent, or whose input is received."""
    micro: int
    peer: int


Work = Task | Transfer


def with_transfers(schedule: Schedule, pp: int, vp: int, micros: int) -> list[list[Work]]:
    """What each rank does in order."""
    orders = schedule.tasks(pp, vp, micros)
    ways = route(schedule.placement, pp, vp)
    found: list[list[Work]] = [[] for _ in orders]
    places, done = [0] * pp, set[tuple[ModelChunk, str, int]]()
    while any(place < len(tasks) for place, tasks in zip(places, orders, strict=True)):
        before = sum(places)
        for rank, tasks in enumerate(orders):
            if places[rank] < len(tasks) and _ready(tasks[places[rank]], rank, ways, done):
                task = tasks[places[rank]]
                places[rank] += 1
                found[rank].append(task)
                done.add((ModelChunk(rank, task.chunk), _half(task), task.micro))
                _send(task, rank, ways, found)
        assert sum(places) > before, f"{schedule.name} waits for itself"
    return found


def _half(task: Task) -> str:
    """What others wait for: a whole backward gives the gradients of inputs as its half does."""
    return "I" if task.kind == "B" else task.kind


def _ready(task: Task, rank: int, ways: Route, done: set[tuple[ModelChunk, str, int]]) -> bool:
    spot = ModelChunk(rank, task.chunk)
    if task.kind == "W":
        return (spot, "I", task.micro) in done
    kind = _half(task)
    given = (ways.before if kind == "F" else ways.after)[spot]
    return given is None or (given, kind, task.micro) in done


def _send(task: Task, rank: int, ways: Route, found: list[list[Work]]) -> None:
    """What a task makes for another rank, on both lists."""
    if task.kind == "W":
        return
    kind: Literal["F", "B"] = "F" if task.kind == "F" else "B"
    to = (ways.after if kind == "F" else ways.before)[ModelChunk(rank, task.chunk)]
    if to is not None and to.rank != rank:
        found[rank].append(Transfer("send", kind, task.chunk, task.micro, to.rank))
        found[to.rank].append(Transfer("receive", kind, to.chunk, task.micro, rank))
