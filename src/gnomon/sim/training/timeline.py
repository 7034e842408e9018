"""The timeline of one training step: pipeline, gradient reduction, optimizer, gathering of weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gnomon.errors import InputError
from gnomon.sim.training.base import Orders
from gnomon.sim.training.times import StepTimes, check_times
from gnomon.sim.training.walk import Walked, walk
from gnomon.spec.workload import Floats


class Span(NamedTuple):
    """Something that one rank does for a while; what does not belong to a chunk or a micro-batch has none."""

    name: str
    """F, B, send F, send B, reduce, optimizer or gather."""
    rank: int
    start_s: float
    end_s: float
    chunk: int | None = None
    micro: int | None = None


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
        ends = []
        for rank, tasks in enumerate(self.orders):
            lasts = {"F": self.times.forward_s[rank].tolist(), "B": self.times.backward_s[rank].tolist()}
            ends.append([at + lasts[t.kind][t.chunk] for t, at in zip(tasks, self.start_s[rank], strict=True)])
        return ends

    @cached_property
    def pipeline_s(self) -> float:
        """The end of the last backward."""
        return max(self._last_end_s(rank) for rank in range(self.times.pp))

    @cached_property
    def reductions(self) -> list[list[Span]]:
        """Gradient buckets of each rank, in the order they are reduced."""
        return [list(self._reductions(rank)) for rank in range(self.times.pp)]

    @cached_property
    def optimizer_start_s(self) -> float:
        """When the last rank has its gradients."""
        return max(self.pipeline_s, max(buckets[-1].end_s for buckets in self.reductions))

    @property
    def step_s(self) -> float:
        after: Floats = np.add(self.times.optimizer_s, self.times.gather_s)
        return self.optimizer_start_s + float(after.max())

    @property
    def busy_s(self) -> Floats:
        """Seconds each rank computes forwards and backwards."""
        per_micro: Floats = (self.times.forward_s + self.times.backward_s).sum(axis=1)
        return per_micro * (len(self.orders[0]) // (2 * self.times.vp))

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
            yield from self._sends(rank, "F")
            yield from self._sends(rank, "B")
            yield from (bucket for bucket in self.reductions[rank] if bucket.end_s > bucket.start_s)
            updated = self.optimizer_start_s + float(optimizer[rank])
            yield Span("optimizer", rank, self.optimizer_start_s, updated)
            yield Span("gather", rank, updated, updated + float(gather[rank]))

    def _last_end_s(self, rank: int) -> float:
        return self.start_s[rank][-1] + float(self.times.backward_s[rank, self.orders[rank][-1].chunk])

    def _sends(self, rank: int, kind: str) -> Iterator[Span]:
        """Transfers of one direction. A stream starts the next when the last is through."""
        forward = kind == "F"
        pp, stages = self.times.pp, self.times.pp * self.times.vp
        arrivals = self._walked.forward_arrivals if forward else self._walked.backward_arrivals
        seconds = self.times.forward_send_s if forward else self.times.backward_send_s
        sent = 0.0
        for task, end in zip(self.orders[rank], self.end_s[rank], strict=True):
            there = task.chunk * pp + rank + (1 if forward else -1)
            if task.kind == kind and pp > 1 and seconds and 0 <= there < stages:
                start, sent = max(end, sent), arrivals[there][task.micro]
                yield Span(f"send {kind}", rank, start, sent, task.chunk, task.micro)

    def _reductions(self, rank: int) -> Iterator[Span]:
        times, (last, begins) = self.times, self._last_backwards(rank)
        sends = times.blocking and times.pp > 1 and (rank or last)
        after = self._last_end_s(rank) + (times.backward_send_s if sends else 0.0)
        reduce_s = np.broadcast_to(times.reduce_s, times.forward_s.shape)[rank].tolist()
        parts = np.broadcast_to(times.reduce_parts, times.forward_s.shape)[rank].tolist()
        free = 0.0
        for chunk, begin in begins:
            for part in range(1, parts[chunk] + 1):
                ready = begin + float(times.backward_s[rank, chunk]) * part / parts[chunk] if times.overlap else after
                start = max(free, ready)
                free = start + reduce_s[chunk] / parts[chunk]
                yield Span("reduce", rank, start, free, chunk)

    def _last_backwards(self, rank: int) -> tuple[int, list[tuple[int, float]]]:
        """The chunk a rank ends with, and all its chunks with the start of their last backward, in time's order."""
        found: dict[int, float] = {}
        for task, start in zip(reversed(self.orders[rank]), reversed(self.start_s[rank]), strict=True):
            if task.kind == "B" and task.chunk not in found:
                found[task.chunk] = start
                if len(found) == self.times.vp:
                    break
        return self.orders[rank][-1].chunk, list(reversed(found.items()))


def timeline(orders: Orders, times: StepTimes) -> Timeline:
    """When every task of a step runs, each as early as its order and its inputs allow. The orders must be valid."""
    check_times(times)
    tasks = len(orders[0]) if orders else 0
    if len(orders) != times.pp or not tasks or tasks % (2 * times.vp):
        raise InputError(
            f"lists of {tasks} tasks for {len(orders)} ranks do not fit {times.pp} ranks of {times.vp} chunks",
            where="schedule",
        )
    return Timeline(orders, times, walk(orders, times, tasks // (2 * times.vp)))
