"""Pipelines whose micro-batches take unequally long, many steps at once: the walk of equal ones, with a column of
seconds for every task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from gnomon.sim.training.base import Orders, Task
from gnomon.sim.training.placement import ModelChunk, Placement, Route, route
from gnomon.sim.training.times import regular
from gnomon.sim.training.walk import stream, walk
from gnomon.spec.workload import Floats

SAVED, SEND_F, SEND_B = "overlapped", "send F", "send B"
Lasting = Callable[[str, int, int, int], Floats]
"""Seconds in every step of a kind of task (F, B, I, W) of a rank, a chunk and a micro-batch; of what an overlapped
forward saves; and of a transfer of what it gives."""


@dataclass(slots=True)
class _State:
    """When every rank is free, its two streams are, and what has arrived."""

    lasting: Lasting
    route: Route
    blocking: bool
    free: list[Floats]
    links: list[list[Floats]]
    arrived: dict[tuple[bool, ModelChunk, int], Floats] = field(default_factory=dict)

    def input(self, rank: int, task: Task) -> Floats:
        """When what a task waits for is there."""
        forward = task.kind == "F"
        return self.arrived.get((forward, ModelChunk(rank, task.chunk), task.micro), self.free[rank])

    def seconds(self, kind: str, rank: int, task: Task) -> Floats:
        return self.lasting(kind, rank, task.chunk, task.micro)

    def give(self, rank: int, task: Task) -> None:
        """Send what a task gives, when the rank is done with it; the network turns at its last stage."""
        here, forward = ModelChunk(rank, task.chunk), task.kind == "F"
        there = self.route.after[here] if forward else self.route.before[here]
        if there is None or there.rank == rank:
            if forward or there is not None:
                self.arrived[forward and there is not None, there or here, task.micro] = self.free[rank]
            return
        sent = self.seconds(SEND_F if forward else SEND_B, rank, task)
        which = stream(self.route, here, task.kind, len(self.free))
        begun = self.free[rank] if self.blocking else np.maximum(self.free[rank], self.links[rank][which])
        self.arrived[forward, there, task.micro] = begun + sent
        if self.blocking:
            self.free[rank] = begun + sent
        else:
            self.links[rank][which] = np.where(sent > 0, begun + sent, self.links[rank][which])

    def run(self, rank: int, task: Task, other: Task | None) -> None:
        """A task, or two that overlap."""
        lasts = self.seconds(task.kind, rank, task)
        if task.kind == "W":
            self.free[rank] = self.free[rank] + lasts
            return
        begin = np.maximum(self.free[rank], self.input(rank, task))
        if other is not None:
            begin = np.maximum(begin, self.input(rank, other))
            lasts = lasts + self.seconds(other.kind, rank, other) - self.seconds(SAVED, rank, task)
        self.free[rank] = begin + lasts
        self.give(rank, task)
        if other is not None:
            self.give(rank, other)


def pipeline_s(
    orders: Orders, sizes: tuple[int, int, int], lasting: Lasting, placement: Placement, *, blocking: bool = False
) -> Floats:
    """Seconds to the last task of every step. `sizes` are ranks, chunks of a rank, and micro-batches of a chunk."""
    pp, vp, _ = sizes
    way, zero = route(placement, pp, vp), np.zeros(1)
    state = _State(lasting, way, blocking, [zero] * pp, [[zero, zero] for _ in range(pp)])
    for rank, task, other in _in_order(orders, sizes, placement):
        state.run(rank, task, other)
    return np.asarray(np.max(np.broadcast_arrays(*state.free), axis=0))


def _in_order(
    orders: Orders, sizes: tuple[int, int, int], placement: Placement
) -> Iterator[tuple[int, Task, Task | None]]:
    """The tasks of all ranks so that each comes after all that it waits for: by their starts where every one takes a
    second; two that overlap together."""
    pp, vp, micros = sizes
    starts = walk(orders, regular(pp, vp, 1.0, 2.0, 0.25, 0.25, weight_s=1.0), micros, placement).starts
    listed = [
        (start, rank, place)
        for rank, tasks in enumerate(orders)
        for place, start in enumerate(starts[rank])
        if not (place and tasks[place - 1].overlapped)
    ]
    for _, rank, place in sorted(listed):
        task = orders[rank][place]
        yield rank, task, orders[rank][place + 1] if task.overlapped else None
