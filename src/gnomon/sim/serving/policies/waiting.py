"""Requests that wait for a place, in the order in which a scheduler takes them: by arrival or by priority.

A request whose adapter finds no slot in a step, or whose blocks are on their way, is passed over, and keeps its place
before those behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from heapq import heappop, heappush
from typing import Protocol, Self

from gnomon.sim.serving.base import NO_REQUEST

NO_ADAPTER = -1
Slots = Collection[int] | None
"""The adapters that may come in, beside none; any where this is nothing."""
Order = tuple[int, int]
"""What comes before what, and a request."""


class Waiting(Protocol):
    """See `ByArrival` and `ByPriority`."""

    def begin(self) -> None:
        """A call of the scheduler begins: those that the last one passed over by `defer` may come in again."""

    def arrive(self, request: int, adapter: int, priority: int) -> None:
        """One more, behind all that came before it with the same priority."""

    def append(self, request: int) -> None:
        """One that arrived before and was preempted."""

    def next(self, slots: Slots) -> int:
        """The first that may come in, or NO_REQUEST."""

    def pop(self) -> None:
        """The one that `next` just named came in."""

    def defer(self) -> None:
        """It is passed over in this call."""

    def park(self) -> None:
        """It is passed over until it is woken."""

    def wake(self, request: int) -> None:
        """One that was parked may come in."""

    def reached(self, request: int) -> list[int]:
        """Of those that were woken, who stands before the one that `next` just named, or is it; all where it named
        nobody. Each is told once."""

    def __len__(self) -> int:
        """Nothing only where nobody waits."""

    def forked(self) -> Self:
        """A copy, to go on by itself."""


class Heaps:
    """What both orders have: those that may come in, by adapter, and those that may not."""

    __slots__ = ("_adapter", "_deferred", "_heaps", "_parked", "_taken", "_woken")

    def __init__(self) -> None:
        self._adapter: dict[int, int] = {}
        self._heaps: dict[int, list[Order]] = {}
        """By adapter."""
        self._deferred: list[Order] = []
        self._parked: dict[int, Order] = {}
        self._woken: list[Order] = []
        self._taken: int | None = NO_ADAPTER
        """In which heap `next` found what it named."""

    def begin(self) -> None:
        if self._deferred:
            for one in self._deferred:
                self._push(one)
            self._deferred = []

    def defer(self) -> None:
        self._deferred.append(self._take())

    def park(self) -> None:
        one = self._take()
        self._parked[one[1]] = one

    def wake(self, request: int) -> None:
        one = self._parked.pop(request)
        self._woken.append(one)
        self._push(one)

    def reached(self, request: int) -> list[int]:
        if not self._woken:
            return []
        last = None if request == NO_REQUEST or self._taken is None else self._heaps[self._taken][0]
        found = sorted(one for one in self._woken if last is None or one <= last)
        self._woken = [one for one in self._woken if one not in found]
        return [one for _, one in found]

    def pop(self) -> None:
        self._take()

    def _push(self, one: Order) -> None:
        heappush(self._heaps.setdefault(self._adapter[one[1]], []), one)

    def _take(self) -> Order:
        assert self._taken is not None
        heap = self._heaps[self._taken]
        one = heappop(heap)
        if not heap:
            del self._heaps[self._taken]
        return one

    def _first(self, slots: Slots) -> int:
        """The first of those in heaps."""
        heaps = self._heaps
        names = list(heaps) if slots is None else [one for one in (*slots, NO_ADAPTER) if one in heaps]
        if not names:
            return NO_REQUEST
        self._taken = names[0] if len(names) == 1 else min(names, key=lambda name: heaps[name][0])
        return heaps[self._taken][0][1]

    def __len__(self) -> int:
        return len(self._heaps) + len(self._deferred) + len(self._parked)

    def forked(self) -> Self:
        other = type(self)()
        other._adapter, other._parked = self._adapter.copy(), self._parked.copy()
        other._heaps = {adapter: heap[:] for adapter, heap in self._heaps.items()}
        other._deferred, other._woken = self._deferred[:], self._woken[:]
        return other


class ByArrival(Heaps):
    """First come first served: those that were passed over, those that were preempted (the last one first), then those
    that never ran."""

    __slots__ = ("_line", "_order")

    def __init__(self) -> None:
        super().__init__()
        self._line: deque[int] = deque()
        """Those that were not passed over."""
        self._order = 0

    def arrive(self, request: int, adapter: int, priority: int) -> None:
        self._adapter[request] = adapter
        self._line.append(request)

    def append(self, request: int) -> None:
        self._line.appendleft(request)

    def next(self, slots: Slots) -> int:
        if self._heaps:
            request = self._first(slots)
            if request != NO_REQUEST:
                return request
        self._taken, line = None, self._line
        while line:
            request = line[0]
            adapter = self._adapter[request]
            if slots is None or adapter == NO_ADAPTER or adapter in slots:
                return request
            self._push(self._take())
        return NO_REQUEST

    def _take(self) -> Order:
        if self._taken is not None:
            return super()._take()
        self._order += 1
        return self._order, self._line.popleft()

    def __len__(self) -> int:
        return len(self._line) + super().__len__()

    def forked(self) -> Self:
        other = super().forked()
        other._line, other._order = self._line.copy(), self._order
        return other


class ByPriority(Heaps):
    """The lowest priority first, then by arrival, whether they ran before or not."""

    __slots__ = ("_priority",)

    def __init__(self) -> None:
        super().__init__()
        self._priority: dict[int, int] = {}

    def arrive(self, request: int, adapter: int, priority: int) -> None:
        self._adapter[request], self._priority[request] = adapter, priority
        self.append(request)

    def append(self, request: int) -> None:
        self._push((self._priority[request], request))

    def next(self, slots: Slots) -> int:
        return self._first(slots)

    def forked(self) -> Self:
        other = super().forked()
        other._priority = self._priority.copy()
        return other
