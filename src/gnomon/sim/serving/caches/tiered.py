"""Hashed blocks with a second tier in the host's memory, as vLLM 0.24's OffloadingConnector keeps them.

Every full block is copied to the host once it is computed, whether it is evicted later or not; there the blocks that
were used last stay. A request that comes in finds blocks on the GPU first, then those that follow in the host.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

Place = tuple[int, int]
"""A key of a sequence's chain, and the number of a block."""


class TieredBlocks(HashedBlocks):
    """See `gnomon.sim.serving.caches.base.CacheModel`."""

    __slots__ = ("_host", "_host_blocks", "_stored")

    def __init__(self, requests: Requests, limits: ServingLimits) -> None:
        super().__init__(requests, limits)
        self._tracks = True
        self._host: OrderedDict[Place, None] = OrderedDict()
        """The block that was used longest ago first."""
        self._host_blocks = limits.host_blocks
        self._stored: dict[int, int] = {}
        """How many of its blocks each request in the batch has offered to the host."""

    def outside(self, request: int, goal: int) -> int:
        """Blocks that the host has, of those that follow what a request finds on the GPU."""
        found, _, _ = self._find(request, (goal - 1) // self.block)
        count = 0
        for place in self._places(request, found, goal // self.block):
            if place not in self._host:
                break
            count += 1
        self._touch(request, goal // self.block)
        return count

    def enter(self, request: int, goal: int, budget: int) -> int:
        found = super().enter(request, goal, budget)
        if found >= 0:
            self._store(request)
        return found

    def extend(self, request: int, tokens: int) -> None:
        super().extend(request, tokens)
        if request in self._stored:
            self._store(request)

    def leave(self, request: int, tokens: int, known: int) -> None:
        super().leave(request, tokens, known)
        self._offer(request, known // self.block)
        self._stored.pop(request, None)

    def _store(self, request: int) -> None:
        self._stored.setdefault(request, 0)
        self._offer(request, self._known[request])

    def _offer(self, request: int, high: int) -> None:
        """Copy blocks to the host that are not there yet."""
        low = self._stored.get(request, 0)
        if high <= low:
            return
        host = self._host
        new = [place for place in self._places(request, low, high) if place not in host]
        for place in new:
            host[place] = None
        if new:
            self._touch(request, high)
        while len(host) > self._host_blocks:
            host.popitem(last=False)
        self._stored[request] = high

    def _touch(self, request: int, high: int) -> None:
        host = self._host
        for place in reversed(list(self._places(request, 0, high))):
            if place in host:
                host.move_to_end(place)

    def _places(self, request: int, low: int, high: int) -> Iterator[Place]:
        for key, first, behind in self._chain(request):
            for number in range(max(first, low), min(behind, high)):
                yield key, number

    def forked(self, requests: Requests | None) -> TieredBlocks:
        plain = super().forked(requests)
        other = object.__new__(TieredBlocks)
        for name in HashedBlocks.__slots__:
            setattr(other, name, getattr(plain, name))
        other._host, other._host_blocks, other._stored = self._host.copy(), self._host_blocks, self._stored.copy()
        return other
