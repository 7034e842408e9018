"""Requests that wait for a place, in the order in which a scheduler takes them: by arrival or by priority.

A request whose adapter finds no slot in a step is passed over, and keeps its place before those behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import Protocol, Self

from gnomon.sim.serving.base import NO_REQUEST

NO_ADAPTER = -1
Slots = Collection[int] | None
"""The adapters that may come in, beside none; any where this is nothing."""


class Waiting(Protocol):
    """See `ByArrival` and `ByPriority`."""

    def arrive(self, request: int, adapter: int, priority: int) -> None:
        """One more, behind all that came before it with the same priority."""

    def append(self, request: int) -> None:
        """One that arrived before and was preempted."""

    def next(self, slots: Slots) -> int:
        """The first that may come in, or NO_REQUEST."""

    def pop(self) -> None:
        """The one that `next` just named came in."""

    def __len__(self) -> int: ...

    def forked(self) -> Self:
        """A copy, to go on by itself."""


class ByArrival:
    """First come first served: those that were passed over, those that were preempted (the last one first), then those
    that never ran."""

    __slots__ = ("_adapter", "_line", "_order", "_passed", "_taken")

    def __init__(self) -> None:
        self._adapter: dict[int, int] = {}
        self._line: deque[int] = deque()
        self._passed: dict[int, deque[tuple[int, int]]] = {}
        """By adapter: their order, and who."""
        self._order = 0
        self._taken: deque[tuple[int, int]] | None = None
        """Where `next` found what it named; nothing where that was the line."""

    def arrive(self, request: int, adapter: int, priority: int) -> None:
        self._adapter[request] = adapter
        self._line.append(request)

    def append(self, request: int) -> None:
        self._line.appendleft(request)

    def next(self, slots: Slots) -> int:
        passed = self._passed
        if passed:
            queues = passed.values() if slots is None else [passed[one] for one in slots if one in passed]
            first = min(queues, key=lambda queue: queue[0], default=None)
            if first is not None:
                self._taken = first
                return first[0][1]
        self._taken, line = None, self._line
        while line:
            request = line[0]
            adapter = self._adapter[request]
            if slots is None or adapter == NO_ADAPTER or adapter in slots:
                return request
            line.popleft()
            passed.setdefault(adapter, deque()).append((self._order, request))
            self._order += 1
        return NO_REQUEST

    def pop(self) -> None:
        if self._taken is None:
            self._line.popleft()
            return
        _, request = self._taken.popleft()
        if not self._taken:
            del self._passed[self._adapter[request]]

    def __len__(self) -> int:
        return len(self._line) + len(self._passed)

    def forked(self) -> ByArrival:
        other = ByArrival()
        other._adapter, other._line, other._order = self._adapter.copy(), self._line.copy(), self._order
        other._passed = {adapter: queue.copy() for adapter, queue in self._passed.items()}
        return other


class ByPriority:
    """The lowest priority first, then by arrival, whether they ran before or not."""

    __slots__ = ("_heaps", "_place", "_taken")

    def __init__(self) -> None:
        self._place: dict[int, tuple[int, int]] = {}
        """Adapter and priority of each."""
        self._heaps: dict[int, list[tuple[int, int]]] = {}
        """By adapter."""
        self._taken = NO_ADAPTER

    def arrive(self, request: int, adapter: int, priority: int) -> None:
        self._place[request] = (adapter, priority)
        self.append(request)

    def append(self, request: int) -> None:
        adapter, priority = self._place[request]
        heappush(self._heaps.setdefault(adapter, []), (priority, request))

    def next(self, slots: Slots) -> int:
        heaps = self._heaps
        names: Sequence[int] = list(heaps) if slots is None else [one for one in (*slots, NO_ADAPTER) if one in heaps]
        if not names:
            return NO_REQUEST
        self._taken = min(names, key=lambda name: heaps[name][0])
        return heaps[self._taken][0][1]

    def pop(self) -> None:
        heap = self._heaps[self._taken]
        heappop(heap)
        if not heap:
            del self._heaps[self._taken]

    def __len__(self) -> int:
        return len(self._heaps)

    def forked(self) -> ByPriority:
        other = ByPriority()
        other._place = self._place.copy()
        other._heaps = {adapter: heap[:] for adapter, heap in self._heaps.items()}
        return other
