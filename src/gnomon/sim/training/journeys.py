"""Pipelines over unlike links whose micro-batches take paths of their own: some skip stages, some swap them.

A node runs one task at a time, the one that came first; a forward waits while as many micro-batches as a node has room
for are on it. A path goes forward node by node; its first node has the loss, and all nodes run backward on the way
back.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

FORWARD, LOSS, BACKWARD = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Nodes by number, and what joins them."""

    forward_s: Sequence[float]
    send_s: Sequence[Sequence[float]]
    """From each node to each."""
    room: int
    """Micro-batches between forward and backward on one node."""
    backward: float = 1.5
    """Seconds of a backward over those of a forward."""
    loss: float = 0.25
    gap_s: float = 0.0
    """Before a node begins its next task."""

    def seconds(self, node: int, kind: int) -> float:
        return self.forward_s[node] * (1.0, self.loss, self.backward)[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """A micro-batch: the nodes that it passes, and when it may begin."""

    path: tuple[int, ...]
    ready_s: float = 0.0
    after: int = -1
    """Another one that has to be back first; none below 0."""


@dataclass(slots=True)
class _State:
    """What nodes are doing."""

    free_s: list[float]
    room: list[int]
    waiting: list[list[tuple[float, int, int]]] = field(default_factory=list)
    """Of each node: when a task came, of which journey, and its step."""


def walk(nodes: Nodes, journeys: Sequence[Journey]) -> list[float]:
    """When the last backward of each journey ends."""
    count = len(nodes.forward_s)
    state = _State([0.0] * count, [nodes.room] * count, [[] for _ in range(count)])
    steps = [_steps(one.path) for one in journeys]
    ends = [0.0] * len(journeys)
    events: list[tuple[float, int, int, int]] = []
    """Arrivals (time, journey, step, node), and moments at which a node looks again (journey -1)."""
    for at, one in enumerate(journeys):
        if one.after < 0:
            heapq.heappush(events, (one.ready_s, at, 0, one.path[0]))
    while events:
        now, journey, step, node = heapq.heappop(events)
        if journey >= 0:
            state.waiting[node].append((now, journey, step))
        task = _next(nodes, state, steps, node, now)
        if task is None:
            continue
        _, journey, step = task
        kind = steps[journey][step][1]
        end = now + nodes.seconds(node, kind)
        state.free_s[node] = end + nodes.gap_s
        state.room[node] += {FORWARD: -1, LOSS: 0, BACKWARD: 1}[kind]
        heapq.heappush(events, (state.free_s[node], -1, 0, node))
        if step + 1 < len(steps[journey]):
            following = steps[journey][step + 1][0]
            heapq.heappush(events, (end + nodes.send_s[node][following], journey, step + 1, following))
            continue
        ends[journey] = end
        for at, one in enumerate(journeys):
            if one.after == journey:
                heapq.heappush(events, (max(end, one.ready_s), at, 0, one.path[0]))
    return ends


def _steps(path: Sequence[int]) -> list[tuple[int, int]]:
    """Nodes and what they do, in order."""
    return [*((node, FORWARD) for node in path), (path[0], LOSS), *((node, BACKWARD) for node in reversed(path))]


def _next(
    nodes: Nodes, state: _State, steps: Sequence[Sequence[tuple[int, int]]], node: int, now: float
) -> tuple[float, int, int] | None:
    """The task that a node begins now, taken off those that wait."""
    if state.free_s[node] > now:
        return None
    waiting = state.waiting[node]
    for task in sorted(waiting):
        if steps[task[1]][task[2]][1] != FORWARD or state.room[node] > 0:
            waiting.remove(task)
            return task
    return None
