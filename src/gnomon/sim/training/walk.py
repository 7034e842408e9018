"""When each task of a pipeline starts: the longest path through all that it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gnomon.errors import InputError
from gnomon.sim.training.base import Orders, Task
from gnomon.sim.training.times import StepTimes

NOT_YET = -1.0
Column = list[float]
"""A time for each micro-batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """Starts by rank in the order of its tasks; arrivals by virtual stage and micro-batch."""

    starts: list[Column]
    forward_arrivals: list[Column]
    backward_arrivals: list[Column]
    """At the last virtual stage: when its own forward ended."""


def walk(orders: Orders, times: StepTimes, micros: int) -> Walked:
    """Run every rank as far as it comes, in sweeps up and down the pipeline, until all have ended.

    The orders must be valid; ranks that wait for each other are refused all the same.
    """
    stages = times.pp * times.vp
    forward = [[0.0] * micros, *([NOT_YET] * micros for _ in range(stages - 1))]
    backward = [[NOT_YET] * micros for _ in range(stages)]
    starts: list[Column] = [[] for _ in orders]
    running = [_rank(rank, tasks, times, starts[rank], forward, backward) for rank, tasks in enumerate(orders)]
    done = -1
    while running:
        before, done = done, sum(map(len, starts))
        if done == before:
            raise InputError("ranks deadlock: they wait for each other", where="schedule")
        running = [rank for rank in reversed(running) if next(rank, True) is None]
    return Walked(starts, forward, backward)


def _rank(
    rank: int, tasks: Sequence[Task], times: StepTimes, starts: Column, forward: list[Column], backward: list[Column]
) -> Iterator[None]:
    """The walk of one rank; it yields when it has to wait for another. This is the hot loop."""
    pp, stages, blocking, start = times.pp, len(forward), times.blocking, starts.append
    mine = range(rank, stages, pp)
    forward_s, backward_s = times.forward_s[rank].tolist(), times.backward_s[rank].tolist()
    forward_in, backward_in = [forward[s] for s in mine], [backward[s] for s in mine]
    # The network turns at the last virtual stage: its forwards arrive at its own backwards.
    forward_out = [forward[s + 1] if s + 1 < stages else backward[s] for s in mine]
    backward_out = [backward[s - 1] if s else [0.0] * len(forward[0]) for s in mine]
    forward_send = [times.forward_send_s if pp > 1 and s + 1 < stages else 0.0 for s in mine]
    backward_send = [times.backward_send_s if pp > 1 and s else 0.0 for s in mine]
    free = forward_link = backward_link = 0.0
    for kind, chunk, micro in tasks:
        if kind == "F":
            inbox = forward_in[chunk]
            while (at := inbox[micro]) < 0:
                yield
            if at < free:
                at = free
            start(at)
            free = at + forward_s[chunk]
            send = forward_send[chunk]
            if not send:
                forward_out[chunk][micro] = free
            elif blocking:
                free += send
                forward_out[chunk][micro] = free
            else:
                forward_link = (free if free > forward_link else forward_link) + send
                forward_out[chunk][micro] = forward_link
        else:
            inbox = backward_in[chunk]
            while (at := inbox[micro]) < 0:
                yield
            if at < free:
                at = free
            start(at)
            free = at + backward_s[chunk]
            send = backward_send[chunk]
            if not send:
                backward_out[chunk][micro] = free
            elif blocking:
                free += send
                backward_out[chunk][micro] = free
            else:
                backward_link = (free if free > backward_link else backward_link) + send
                backward_out[chunk][micro] = backward_link
