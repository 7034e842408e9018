"""A training step the plain way: every start is pushed back until no rule is broken. Slow, and shares no code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gnomon.sim.training import Orders, StepTimes, Task
from gnomon.sim.training.placement import LOOP, Placement

Node = tuple[Any, ...]
Rule = tuple[Node, Node, float]
"""The second starts no sooner than so many seconds after the first."""


def plain_starts(orders: Orders, times: StepTimes, placement: Placement = LOOP) -> dict[Node, float]:
    """Starts of tasks (kind, rank, chunk, micro), sends ("send", kind, ...), buckets, optimizers and gatherings."""
    rules = [*_pipeline_rules(orders, times, placement), *_ending_rules(orders, times, placement)]
    starts: dict[Node, float] = {node: 0.0 for rule in rules for node in rule[:2]}
    changed = True
    while changed:
        changed = False
        for first, second, lag in rules:
            if starts[second] < starts[first] + lag:
                starts[second] = starts[first] + lag
                changed = True
    return starts


def node(task: Task, rank: int) -> Node:
    return (task.kind, rank, task.chunk, task.micro)


def seconds(task: Task, rank: int, times: StepTimes) -> float:
    named = {"F": times.forward_s, "B": times.backward_s, "I": times.input_s, "W": times.weight_s}
    return float(np.broadcast_to(named[task.kind], times.forward_s.shape)[rank, task.chunk])


def lasting(tasks: Sequence[Task], rank: int, times: StepTimes) -> list[float]:
    """How long each task keeps its rank; two that overlap keep it as one."""
    found = [seconds(task, rank, times) for task in tasks]
    saved = np.broadcast_to(times.overlap_s, times.forward_s.shape)[rank]
    for place, task in enumerate(tasks):
        if task.overlapped:
            found[place] = found[place + 1] = found[place] + found[place + 1] - float(saved[task.chunk])
    return found


def _target(task: Task, rank: int, times: StepTimes, placement: Placement) -> tuple[Node, bool] | None:
    """The task that needs this one's output, where another stage has it, whatever half of a backward it is; and whether
    that is up the ranks."""
    stages, chunk = placement.stages(times.pp, times.vp), task.chunk
    wanted = stages[rank, chunk] + (1 if task.kind == "F" else -1)
    mine = [chunk] if placement.copies > 1 else range(times.vp)
    for other in range(times.pp):
        for its in mine:
            if stages[other, its] == wanted and task.kind != "W":
                up = other != (rank + 1) % times.pp if task.kind == "F" else rank == (other + 1) % times.pp
                return ("F" if task.kind == "F" else "B", other, its, task.micro), up
    return None


def _halves(kind: str, *rest: Any) -> list[Node]:
    return [("F", *rest)] if kind == "F" else [("B", *rest), ("I", *rest)]


def _pipeline_rules(orders: Orders, times: StepTimes, placement: Placement) -> Iterator[Rule]:
    there = {node(task, rank) for rank, tasks in enumerate(orders) for task in tasks}
    for rank, tasks in enumerate(orders):
        links: dict[bool, tuple[Node, float]] = {}
        for place, (task, lasts) in enumerate(zip(tasks, lasting(tasks, rank, times), strict=True)):
            here = node(task, rank)
            later = place + 1 + task.overlapped
            following = node(tasks[later], rank) if later < len(tasks) else None
            if task.overlapped:
                yield here, node(tasks[place + 1], rank), 0.0
                yield node(tasks[place + 1], rank), here, 0.0
            if following:
                yield here, following, lasts
            if task.kind in "FI":
                nexts = _halves("B", *here[1:]) if task.kind == "F" else [("W", *here[1:])]
                yield from ((here, one, lasts) for one in nexts if one in there)
            target = _target(task, rank, times, placement)
            if target is None:
                continue
            (kind, *rest), up = target
            targets = [one for one in _halves(kind, *rest) if one in there]
            if rest[0] == rank:
                yield from ((here, one, lasts) for one in targets)
                continue
            send, send_s = ("send", *here), times.forward_send_s if task.kind == "F" else times.backward_send_s
            yield here, send, lasts
            yield from ((send, one, send_s) for one in targets)
            if times.blocking and following:
                yield send, following, send_s
            if up in links:
                yield links[up][0], send, links[up][1]
            links[up] = send, send_s


def _ending_rules(orders: Orders, times: StepTimes, placement: Placement) -> Iterator[Rule]:
    optimizer, gather = (np.broadcast_to(t, times.pp) for t in (times.optimizer_s, times.gather_s))
    for rank, tasks in enumerate(orders):
        lasts = [place for place, task in enumerate(tasks) if task.kind in "BW" and _is_last(task, tasks[place + 1 :])]
        before: tuple[Node, float] | None = None
        final = tasks[-1]
        each = lasting(tasks, rank, times)
        for place in lasts:
            task = tasks[place]
            parts = int(np.broadcast_to(times.reduce_parts, times.forward_s.shape)[rank, task.chunk])
            part_s = float(np.broadcast_to(times.reduce_s, times.forward_s.shape)[rank, task.chunk]) / parts
            for part in range(parts):
                bucket: Node = ("bucket", rank, task.chunk, part)
                if times.overlap:
                    yield node(task, rank), bucket, each[place] * (part + 1) / parts
                else:
                    yield node(final, rank), bucket, each[-1]
                    if times.blocking and _sends(final, rank, times, placement):
                        yield ("send", *node(final, rank)), bucket, times.backward_send_s
                if before:
                    yield before[0], bucket, before[1]
                before = bucket, part_s
        for other in range(times.pp):
            yield node(final, rank), ("optimizer", other), each[-1]
            if before:
                yield before[0], ("optimizer", other), before[1]
        yield ("optimizer", rank), ("gather", rank), float(optimizer[rank])
        yield ("gather", rank), ("end",), float(gather[rank])


def _sends(task: Task, rank: int, times: StepTimes, placement: Placement) -> bool:
    target = _target(task, rank, times, placement)
    return target is not None and target[0][1] != rank


def _is_last(task: Task, later: Any) -> bool:
    return not any(other.kind in "BW" and other.chunk == task.chunk for other in later)


def most_in_flight(tasks: list[Task], chunk: int | None = None) -> int:
    """Counted in a chunk or in all: a micro-batch is held from the start of its forward to the end of its backward,
    or of the half by weight."""
    held = most = 0
    for task in tasks:
        if chunk in (None, task.chunk):
            held += 1 if task.kind == "F" else 0
            most = max(most, held)
            held -= 1 if task.kind in "BW" else 0
    return most
