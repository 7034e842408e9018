"""Chunked mixed batches that let a request in only where the cache has room for all it is predicted to hold."""

from __future__ import annotations

from typing import Self

from gnomon.sim.serving.base import Decision, Queue
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class ReservingPolicy(ChunkedPolicy):
    """See `gnomon.sim.serving.base.Policy`. A request counts with its prompt and a share of its answer from the step in
    which it comes in until it leaves; the first of an empty batch always comes in."""

    __slots__ = ("_reserved", "_share")

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel, share: float = 1.0) -> None:
        super().__init__(requests, limits, cache)
        self._share = share
        self._reserved: dict[int, int] = {}
        """Blocks of those that hold a place."""

    def forked(self, requests: Requests | None) -> Self:
        other = super().forked(requests)
        other._reserved = self._reserved.copy()
        return other

    def decide(self, queue: Queue, now: float) -> Decision:
        gone = [
            one
            for one in self._reserved
            if one not in self.decoding and one not in self.leaving and one != self.partial
        ]
        for one in gone:
            del self._reserved[one]
        return super().decide(queue, now)

    def enter(self, request: int, budget: int) -> tuple[int, int]:
        blocks = -(-(self._prompt[request] + round(self._share * self._output[request])) // self._block)
        if self._reserved and sum(self._reserved.values()) + blocks > self._total:
            return 0, 0
        found = super().enter(request, budget)
        if found[0]:
            self._reserved[request] = blocks
        return found

    def preempt_last(self) -> int:
        request = super().preempt_last()
        self._reserved.pop(request, None)
        return request
