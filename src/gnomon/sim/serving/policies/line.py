"""Who waits for a place in the batch, and who may have it: by arrival or priority, within the slots of adapters."""

from __future__ import annotations

from typing import Self

import numpy as np

from gnomon.sim.serving.base import Queue
from gnomon.sim.serving.policies.slots import AdapterSlots
from gnomon.sim.serving.policies.waiting import NO_ADAPTER, ByArrival, ByPriority, Slots, Waiting
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Ints, Requests


class WaitingLine:
    """All requests that the scheduler can see and that are in no batch, with adapter and priority of each request."""

    __slots__ = ("adapter", "again", "priority", "slots", "waiting")

    def __init__(self, requests: Requests, limits: ServingLimits) -> None:
        self.adapter, self.priority = _columns(requests)
        self.slots = AdapterSlots(limits) if limits.adapter_slots else None
        self.waiting: Waiting = ByPriority() if limits.by_priority else ByArrival()
        self.again: set[int] = set()
        """Those that wait and ran before."""

    def add(self, adapter: int, priority: int) -> None:
        """One more request that may come."""
        self.adapter.append(adapter)
        self.priority.append(priority)

    def see(self, queue: Queue, now: float) -> None:
        """Requests that the scheduler can see by now wait here."""
        visible, head = queue.visible_s, queue.head
        while visible[head] <= now:
            self.waiting.arrive(head, self.adapter[head] if self.slots else NO_ADAPTER, self.priority[head])
            head += 1
        queue.head = head

    def open(self, scheduled: set[int]) -> Slots:
        """Adapters that may come in beside those that a step has."""
        return scheduled if self.slots and len(scheduled) >= self.slots.count else None

    def preempted(self, request: int) -> None:
        self.waiting.append(request)
        self.again.add(request)

    def came_in(self, request: int, queue: Queue, now: float, scheduled: set[int]) -> None:
        """A request has a place in a step with such adapters."""
        if request in self.again:
            self.again.discard(request)
        else:
            queue.scheduled_s[request] = now
        if self.slots and self.adapter[request] != NO_ADAPTER:
            scheduled.add(self.adapter[request])

    def forked(self, requests: Requests | None) -> Self:
        other = object.__new__(type(self))
        other.adapter, other.priority = _columns(requests) if requests else (self.adapter[:], self.priority[:])
        other.slots = self.slots.forked() if self.slots else None
        other.waiting, other.again = self.waiting.forked(), self.again.copy()
        return other


def _columns(requests: Requests) -> tuple[list[int], list[int]]:
    """Adapter and priority of each request."""

    def values(column: Ints | None, missing: int) -> list[int]:
        found: list[int] = (np.full(len(requests), missing) if column is None else column).tolist()
        return found

    return values(requests.adapter, NO_ADAPTER), values(requests.priority, 0)
