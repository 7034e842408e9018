"""Schedulers of releases after 0.24, where they order requests otherwise (checked against 0.33.0).

By priority, a request that preempts itself leaves the step to those behind it, and one that only awaited its last token
shifts nobody when it is preempted. With adapters, one is in use as long as a request of it has a place, whether that
runs in the step or not; and a request that finds no slot keeps its place in the queue, behind preempted ones.

Not modelled: with drafts, 0.33 pads a request that comes in with one token to compute to the size of the decodes.
"""

from __future__ import annotations

from typing import Self

from gnomon.sim.serving.base import NO_REQUEST, ONCE, UNTIL_ARRIVAL, Queue
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.line import WaitingLine
from gnomon.sim.serving.policies.ordered import OrderedPolicy
from gnomon.sim.serving.policies.stepped import SteppedPolicy
from gnomon.sim.serving.policies.waiting import NO_ADAPTER, ByPriority, Waiting
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class InPlace(ByPriority):
    """First come first served: those that were preempted (the last one first), then by arrival. Who is passed over
    keeps its place."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        super().__init__()
        self._before = 0

    def arrive(self, request: int, adapter: int, priority: int) -> None:
        self._adapter[request] = adapter
        self._push((0, request))

    def append(self, request: int) -> None:
        self._before -= 1
        self._push((self._before, request))

    def forked(self) -> Self:
        other = super().forked()
        other._before = self._before
        return other


def _keep_order(line: WaitingLine, limits: ServingLimits) -> Waiting:
    if not limits.by_priority:
        line.waiting = InPlace()
    return line.waiting


class InPlacePolicy(OrderedPolicy):
    """See `gnomon.sim.serving.base.Policy`."""

    __slots__ = ()
    leaves_step = True

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel) -> None:
        super().__init__(requests, limits, cache)
        self.resumed = _keep_order(self._line, limits)

    def horizon(self, queue: Queue, now: float) -> int:
        found = super().horizon(queue, now)
        return ONCE if found == UNTIL_ARRIVAL and self.leaving and self.resumed else found

    def _in_use(self, prompts: int) -> set[int]:
        found = super()._in_use(prompts)
        if self._line.slots is None:
            return found
        adapter = self._line.adapter
        found.update(adapter[request] for request in (*self.leaving, *self._stalled))
        if self.partial != NO_REQUEST:
            found.add(adapter[self.partial])
        return found - {NO_ADAPTER}


class InPlaceSteppedPolicy(SteppedPolicy):
    """See `gnomon.sim.serving.base.Policy`: beside drafts, KV offloading or images."""

    leaves_step = True

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel) -> None:
        super().__init__(requests, limits, cache)
        self.resumed = _keep_order(self._line, limits)

    def _in_use(self) -> set[int]:
        return {self._line.adapter[request] for request in self._batch} - {NO_ADAPTER} if self._line.slots else set()
