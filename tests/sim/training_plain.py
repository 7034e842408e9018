"""A training step the plain way: every start is pushed back until no rule is broken. Slow, and shares no code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gnomon.sim.training import Orders, StepTimes, Task

Node = tuple[Any, ...]
Rule = tuple[Node, Node, float]
"""The second starts no sooner than so many seconds after the first."""


def plain_starts(orders: Orders, times: StepTimes) -> dict[Node, float]:
    """Starts of tasks (kind, rank, chunk, micro), sends ("send", kind, ...), buckets, optimizers and gatherings."""
    rules = [*_pipeline_rules(orders, times), *_ending_rules(orders, times)]
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
    return float((times.forward_s if task.kind == "F" else times.backward_s)[rank, task.chunk])


def _target(task: Task, rank: int, times: StepTimes) -> Node | None:
    """The task that needs this one's output, where another virtual stage has it."""
    stage = task.chunk * times.pp + rank + (1 if task.kind == "F" else -1)
    if not 0 <= stage < times.pp * times.vp:
        return None
    return (task.kind, stage % times.pp, stage // times.pp, task.micro)


def _pipeline_rules(orders: Orders, times: StepTimes) -> Iterator[Rule]:
    for rank, tasks in enumerate(orders):
        links: dict[str, Node] = {}
        for place, task in enumerate(tasks):
            here, lasts = node(task, rank), seconds(task, rank, times)
            following = node(tasks[place + 1], rank) if place + 1 < len(tasks) else None
            if following:
                yield here, following, lasts
            if task.kind == "F":
                yield here, ("B", *here[1:]), lasts
            target = _target(task, rank, times)
            if target is None:
                continue
            if times.pp == 1:
                yield here, target, lasts
                continue
            send, send_s = ("send", *here), times.forward_send_s if task.kind == "F" else times.backward_send_s
            yield here, send, lasts
            yield send, target, send_s
            if times.blocking and following:
                yield send, following, send_s
            if task.kind in links:
                yield links[task.kind], send, send_s
            links[task.kind] = send


def _ending_rules(orders: Orders, times: StepTimes) -> Iterator[Rule]:
    optimizer, gather = (np.broadcast_to(t, times.pp) for t in (times.optimizer_s, times.gather_s))
    for rank, tasks in enumerate(orders):
        lasts = [task for place, task in enumerate(tasks) if task.kind == "B" and _is_last(task, tasks[place + 1 :])]
        before: tuple[Node, float] | None = None
        final = tasks[-1]
        for task in lasts:
            parts = int(np.broadcast_to(times.reduce_parts, times.forward_s.shape)[rank, task.chunk])
            part_s = float(np.broadcast_to(times.reduce_s, times.forward_s.shape)[rank, task.chunk]) / parts
            for part in range(parts):
                bucket: Node = ("bucket", rank, task.chunk, part)
                if times.overlap:
                    yield node(task, rank), bucket, seconds(task, rank, times) * (part + 1) / parts
                else:
                    yield node(final, rank), bucket, seconds(final, rank, times)
                    if times.blocking and times.pp > 1 and _target(final, rank, times):
                        yield ("send", *node(final, rank)), bucket, times.backward_send_s
                if before:
                    yield before[0], bucket, before[1]
                before = bucket, part_s
        for other in range(times.pp):
            yield node(final, rank), ("optimizer", other), seconds(final, rank, times)
            if before:
                yield before[0], ("optimizer", other), before[1]
        yield ("optimizer", rank), ("gather", rank), float(optimizer[rank])
        yield ("gather", rank), ("end",), float(gather[rank])


def _is_last(task: Task, later: Any) -> bool:
    return not any(other.kind == "B" and other.chunk == task.chunk for other in later)


def most_in_flight(tasks: list[Task], chunk: int | None = None) -> int:
    """Counted in a chunk or in all: a micro-batch is held from the start of its forward to the end of its backward."""
    held = most = 0
    for task in tasks:
        if chunk in (None, task.chunk):
            held += 1 if task.kind == "F" else 0
            most = max(most, held)
            held -= 1 if task.kind == "B" else 0
    return most
