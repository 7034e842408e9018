"""The timeline of one training step: pipeline, gradient reduction, optimizer, gathering of weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gnomon.errors import InputError
from gnomon.sim.training.base import LANES, Orders
from gnomon.sim.training.placement import LOOP, ModelChunk, Placement
from gnomon.sim.training.times import StepTimes, check_times
from gnomon.sim.training.walk import Walked, stream, walk
from gnomon.spec.workload import Floats


class Span(NamedTuple):
    """Something that one rank does for a while; what does not belong to a chunk or a micro-batch has none."""

    name: str
    """F, B, I, W, send F, send B, reduce, optimizer, gather, copy out or copy in."""
    rank: int
    start_s: float
    end_s: float
    chunk: int | None = None
    micro: int | None = None

    @property
    def lane(self) -> str:
        """What runs at once on a rank stands in lanes of its own."""
        return LANES.get(self.name, "compute")


@dataclass(frozen=True, eq=False)
class Timeline:
    """When everything happens. Only starts are stored; everything else is computed on demand."""

    orders: Orders
    times: StepTimes
    _walked: Walked

    @property
    def start_s(self) -> list[list[float]]:
        """Starts of the tasks of each rank, in the order of its list."""
        return self._walked.starts

    @cached_property
    def end_s(self) -> list[list[float]]:
        if self._walked.ends is not None:
            return self._walked.ends
        return [
            [at + lasts for at, lasts in zip(self.start_s[rank], self._seconds(rank), strict=True)]
            for rank in range(self.times.pp)
        ]

    def _seconds(self, rank: int) -> Iterator[float]:
        """How long each task of a rank runs; two that overlap run as one."""
        seconds, tasks = self.times.of_rank(rank), iter(self.orders[rank])
        for task in tasks:
            lasts = seconds[task.kind][task.chunk]
            if task.overlapped:
                other = next(tasks)
                lasts += seconds[other.kind][other.chunk] - seconds["overlapped"][task.chunk]
                yield lasts
            yield lasts

    @cached_property
    def pipeline_s(self) -> float:
        """The end of the last task."""
        return max(map(self._last_end_s, range(self.times.pp)))

    def _last_end_s(self, rank: int) -> float:
        task, seconds = self.orders[rank][-1], self.times.of_rank(rank)
        overlapped = len(self.orders[rank]) > 1 and self.orders[rank][-2].overlapped
        if overlapped or self._walked.ends is not None:
            return self.end_s[rank][-1]
        return self.start_s[rank][-1] + seconds[task.kind][task.chunk]

    @cached_property
    def reductions(self) -> list[list[Span]]:
        """Gradient buckets of each rank, in the order they are reduced."""
        return [list(self._reductions(rank)) for rank in range(self.times.pp)]

    @cached_property
    def optimizer_start_s(self) -> float:
        """When the last rank has its gradients."""
        last = max((side.end_s for side in self._walked.side), default=0.0)
        return max(self.pipeline_s, last, max(buckets[-1].end_s for buckets in self.reductions))

    @property
    def step_s(self) -> float:
        after: Floats = np.add(self.times.optimizer_s, self.times.gather_s)
        return self.optimizer_start_s + float(after.max())

    @property
    def busy_s(self) -> Floats:
        """Seconds each rank computes forwards and backwards."""
        if all(task.kind in "FB" and not task.overlapped for task in self.orders[0]):
            per_micro: Floats = (self.times.forward_s + self.times.backward_s).sum(axis=1)
            return per_micro * (len(self.orders[0]) // (2 * self.times.vp))
        found = []
        for rank, tasks in enumerate(self.orders):
            second = [False, *(task.overlapped for task in tasks[:-1])]
            lasting = zip(self._seconds(rank), second, strict=True)
            found.append(sum(seconds for seconds, counted in lasting if not counted))
        return np.array(found)

    @property
    def bubble_fraction(self) -> float:
        """The share of the pipeline's time in which the average rank computes nothing."""
        return max(0.0, 1 - float(self.busy_s.mean()) / self.pipeline_s) if self.pipeline_s else 0.0

    def spans(self) -> Iterator[Span]:
        """Everything that takes time, rank by rank."""
        optimizer = np.broadcast_to(self.times.optimizer_s, self.times.pp)
        gather = np.broadcast_to(self.times.gather_s, self.times.pp)
        for rank, tasks in enumerate(self.orders):
            for task, start, end in zip(tasks, self.start_s[rank], self.end_s[rank], strict=True):
                yield Span(task.kind, rank, start, end, task.chunk, task.micro)
            yield from sorted(self._sends(rank), key=lambda span: span.name == "send B")
            yield from (bucket for bucket in self.reductions[rank] if bucket.end_s > bucket.start_s)
            yield from self._side_spans(rank)
            updated = self.optimizer_start_s + float(optimizer[rank])
            yield Span("optimizer", rank, self.optimizer_start_s, updated)
            yield Span("gather", rank, updated, updated + float(gather[rank]))

    def _side_spans(self, rank: int) -> Iterator[Span]:
        for side in self._walked.side:
            if side.rank == rank and side.end_s > side.start_s:
                yield Span(side.name, rank, side.start_s, side.end_s, side.chunk, side.micro)

    @property
    def held_bytes(self) -> Sequence[Sequence[float]]:
        """By rank and group of side tasks: the most bytes of the chip that they had at once."""
        return self._walked.held_bytes

    def _sends(self, rank: int) -> Iterator[Span]:
        """Transfers to the next rank and to the one before. A stream starts one when the last is through."""
        walked, sent = self._walked, [0.0, 0.0]
        for task, end in zip(self.orders[rank], self.end_s[rank], strict=True):
            spot, forward = ModelChunk(rank, task.chunk), task.kind == "F"
            there = walked.route.after[spot] if forward else walked.route.before[spot]
            seconds = self.times.forward_send_s if forward else self.times.backward_send_s
            if task.kind == "W" or there is None or there.rank == rank or not seconds:
                continue
            up = stream(walked.route, spot, task.kind, self.times.pp)
            arrivals = walked.forward_arrivals if forward else walked.backward_arrivals
            start, sent[up] = max(end, sent[up]), arrivals[there][task.micro]
            yield Span(f"send {'F' if forward else 'B'}", rank, start, sent[up], task.chunk, task.micro)

    def _reductions(self, rank: int) -> Iterator[Span]:
        times, final = self.times, self.orders[rank][-1]
        before = self._walked.route.before[ModelChunk(rank, final.chunk)]
        sends = times.blocking and final.kind != "W" and before is not None and before.rank != rank
        after = self._last_end_s(rank) + (times.backward_send_s if sends else 0.0)
        reduce_s = np.broadcast_to(times.reduce_s, times.forward_s.shape)[rank].tolist()
        parts = np.broadcast_to(times.reduce_parts, times.forward_s.shape)[rank].tolist()
        lane = LANES["reduce"]
        free = max((span.end_s for span in self._side_spans(rank) if span.lane == lane), default=0.0)
        for chunk, begin, lasts in self._last_backwards(rank):
            for part in range(1, parts[chunk] + 1):
                ready = begin + lasts * part / parts[chunk] if times.overlap else after
                start = max(free, ready)
                free = start + reduce_s[chunk] / parts[chunk]
                yield Span("reduce", rank, start, free, chunk)

    def _last_backwards(self, rank: int) -> list[tuple[int, float, float]]:
        """All chunks of a rank with the start of their last backward, or its half by weight, and how long that runs;
        in time's order."""
        found: dict[int, tuple[int, float, float]] = {}
        lasting = list(self._seconds(rank))
        if self._walked.ends is not None:
            lasting = [end - start for start, end in zip(self.start_s[rank], self.end_s[rank], strict=True)]
        for task, start, lasts in zip(
            reversed(self.orders[rank]), reversed(self.start_s[rank]), reversed(lasting), strict=True
        ):
            if task.kind in "BW" and task.chunk not in found:
                found[task.chunk] = task.chunk, start, lasts
                if len(found) == self.times.vp:
                    break
        return list(reversed(found.values()))


def timeline(orders: Orders, times: StepTimes, placement: Placement = LOOP) -> Timeline:
    """When every task of a step runs, each as early as its order and its inputs allow. The orders must be valid."""
    check_times(times)
    tasks = len(orders[0]) if orders else 0
    forwards = sum(task.kind == "F" for task in orders[0]) if orders else 0
    if len(orders) != times.pp or not forwards or forwards % times.vp:
        raise InputError(
            f"lists of {tasks} tasks for {len(orders)} ranks do not fit {times.pp} ranks of {times.vp} chunks",
            where="schedule",
        )
    if times.side:
        from gnomon.sim.training.lanes import run_with_side  # few steps have side tasks

        return Timeline(orders, times, run_with_side(orders, times, forwards // times.vp, placement))
    return Timeline(orders, times, walk(orders, times, forwards // times.vp, placement))
