"""When each task of a pipeline starts: the longest path through all that it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gnomon.errors import InputError
from gnomon.sim.training.base import Orders, Task
from gnomon.sim.training.placement import ModelChunk, Placement, Route, route
from gnomon.sim.training.times import StepTimes

NOT_YET = -1.0
Column = list[float]
"""A time for each micro-batch."""
Arrivals = dict[ModelChunk, Column]
"""By model chunk and micro-batch: when what it waits for is there."""
Output = tuple[Column, float, bool]
"""Where what a task gives arrives, how long its transfer takes, and in which stream."""


@dataclass(slots=True, eq=False)
class SideSpan:
    """When a side task of a part of a pass ran (`side`)."""

    name: str
    rank: int
    chunk: int
    micro: int
    start_s: float = NOT_YET
    end_s: float = NOT_YET


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """Starts by rank in the order of its tasks, and arrivals of activations and of gradients."""

    starts: list[Column]
    forward_arrivals: Arrivals
    backward_arrivals: Arrivals
    """At the last stage: when its own forward ended."""
    route: Route
    ends: list[Column] | None = None
    """Of the tasks, where they are not just their seconds after the starts."""
    side: tuple[SideSpan, ...] = ()
    held_bytes: Sequence[Sequence[float]] = ()
    """By rank and group of side tasks: the most bytes of the chip that they had at once."""


def walk(orders: Orders, times: StepTimes, micros: int, placement: Placement) -> Walked:
    """Run every rank as far as it comes, in sweeps up and down the pipeline, until all have ended.

    The orders must be valid; ranks that wait for each other are refused all the same.
    """
    way = route(placement, times.pp, times.vp)
    arrivals = unsent(way, micros)
    starts: list[Column] = [[] for _ in orders]
    swept(
        [_rank(rank, tasks, times, starts[rank], arrivals, way) for rank, tasks in enumerate(orders)],
        lambda: sum(map(len, starts)),
    )
    return Walked(starts, *arrivals, way)


def unsent(way: Route, micros: int) -> tuple[Arrivals, Arrivals]:
    """Arrivals of a step that begins: what the first stage reads is there."""
    forward = {spot: [0.0 if before is None else NOT_YET] * micros for spot, before in way.before.items()}
    return forward, {spot: [NOT_YET] * micros for spot in way.before}


def swept(running: list[Iterator[None]], done_by: Callable[[], int]) -> None:
    """Run ranks as far as each comes until all have ended; `done_by` is how much they have done."""
    done = -1
    while running:
        before, done = done, done_by()
        if done == before:
            raise InputError("ranks deadlock: they wait for each other", where="schedule")
        running = [rank for rank in reversed(running) if next(rank, True) is None]


def stream(route: Route, here: ModelChunk, kind: str, pp: int) -> bool:
    """In which of its two streams a rank sends what a task of a chunk gives, to the next rank or to the one before. A
    gradient travels against the activations of the same chunk."""
    if kind == "F":
        there = route.after[here]
        return there is not None and there.rank != (here.rank + 1) % pp
    there = route.before[here]
    return there is not None and here.rank == (there.rank + 1) % pp


def outputs_of(rank: int, times: StepTimes, arrivals: tuple[Arrivals, Arrivals], way: Route) -> dict[str, list[Output]]:
    """By kind of task and by chunk. The network turns at the last stage: its forwards arrive at its own backwards."""
    forward, backward = arrivals
    unsent = [0.0] * len(next(iter(forward.values())))
    found: dict[str, list[Output]] = {"F": [], "B": []}
    for chunk in range(times.vp):
        here = ModelChunk(rank, chunk)
        for kind, there, at, seconds in (
            ("F", way.after[here], forward, times.forward_send_s),
            ("B", way.before[here], backward, times.backward_send_s),
        ):
            if there is None:
                found[kind].append((backward[here] if kind == "F" else unsent, 0.0, False))
            else:
                sent = 0.0 if there.rank == rank else seconds
                found[kind].append((at[there], sent, stream(way, here, kind, times.pp)))
    return found | {"I": found["B"]}


def _rank(
    rank: int, tasks: Sequence[Task], times: StepTimes, starts: Column, arrivals: tuple[Arrivals, Arrivals], way: Route
) -> Iterator[None]:
    """The walk of one rank; it yields when it has to wait for another. This is the hot loop."""
    blocking, start, lasts = times.blocking, starts.append, times.of_rank(rank)
    outputs, saved_s = outputs_of(rank, times, arrivals, way), lasts["overlapped"]
    inboxes = {
        kind: [arrivals[kind != "F"][ModelChunk(rank, chunk)] for chunk in range(times.vp)] for kind in ("F", "B", "I")
    }
    free, links, queue = 0.0, [0.0, 0.0], iter(tasks)
    for kind, chunk, micro, overlapped in queue:
        if kind == "W":
            start(free)
            free += lasts["W"][chunk]
            continue
        inbox = inboxes[kind][chunk]
        while (at := inbox[micro]) < 0:
            yield
        if at < free:
            at = free
        if overlapped:
            # Both wait for each other's inputs, and what the forward gives is sent first.
            other, its_chunk, its_micro, _ = next(queue)
            inbox = inboxes[other][its_chunk]
            while (its_at := inbox[its_micro]) < 0:
                yield
            at = max(at, its_at)
            start(at)
            free = at + (lasts[kind][chunk] + lasts[other][its_chunk] - saved_s[chunk])
            there, send, which = outputs[kind][chunk]
            there[micro] = max(free, links[which] if send else 0.0) + send
            links[which] = there[micro] if send else links[which]
            free = there[micro] if blocking else free
            kind, chunk, micro = other, its_chunk, its_micro
        else:
            free = at + lasts[kind][chunk]
        start(at)
        there, send, which = outputs[kind][chunk]
        if not send:
            there[micro] = free
        elif blocking:
            free += send
            there[micro] = free
        else:
            link = links[which]
            links[which] = there[micro] = (free if free > link else link) + send
