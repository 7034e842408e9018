"""Hashed blocks with a second tier in the host's memory, as vLLM 0.24's OffloadingConnector keeps them.

Every full block of a prompt is copied to the host by the step that computes it, whether it is evicted later or not. A
request that comes in finds blocks on the GPU first, then those that follow in the host.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.sim.serving.caches.host import HostBlocks, Place
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class TieredBlocks(HashedBlocks):
    """See `gnomon.sim.serving.caches.base.CacheModel`."""

    __slots__ = ("_host", "_stored")

    def __init__(self, requests: Requests, limits: ServingLimits) -> None:
        super().__init__(requests, limits)
        self._shared = self._tracks = True
        self._host = HostBlocks(limits.host_blocks)
        self._stored: dict[int, int] = {}
        """How many of its blocks each request has offered to the host, as of its last step."""

    def outside(self, request: int, goal: int) -> tuple[int, int]:
        """Blocks that a request finds on the GPU, and those that the host has of what follows: LATER where the request
        must be passed over. All of them count as used."""
        found, _, _ = self._find(request, (goal - 1) // self.block)
        places = self._places(request, 0, goal // self.block)
        count = self._host.lookup(places[found:])
        self._host.touch(places)
        return found, count

    def load(self, request: int, first: int, behind: int) -> list[Place]:
        """Begin to copy a request's blocks to the GPU, where it holds them, from one up to another."""
        places = self._places(request, first, behind)
        self._host.load(places)
        self._stored[request] = behind
        return places

    def loaded(self, places: Sequence[Place]) -> None:
        """The scheduler has heard that this copy has ended."""
        self._host.loaded(places)

    def store(self, request: int, tokens: int, known: int) -> list[Place]:
        """A step computes the prompt of a request up to here: begin to copy its full blocks to the host that are not
        there. `known` of its tokens have come back, and their blocks count as used."""
        first, behind = self._stored.get(request, 0), tokens // self.block
        new: list[Place] | None = []
        if behind > first:
            new = self._host.store(self._places(request, first, behind))
            if new is None:
                return []
        self._stored[request] = behind
        if new:
            self._host.touch(self._places(request, 0, known // self.block))
        return new or []

    def stored(self, places: Sequence[Place]) -> None:
        """The scheduler has heard that these blocks are in the host."""
        self._host.stored(places)

    def forget(self, request: int) -> None:
        """A request has ended."""
        self._stored.pop(request, None)

    def _places(self, request: int, low: int, high: int) -> list[Place]:
        return [
            (key, number)
            for key, first, behind in self._chain(request)
            for number in range(max(first, low), min(behind, high))
        ]

    def forked(self, requests: Requests | None) -> TieredBlocks:
        plain = super().forked(requests)
        other = object.__new__(TieredBlocks)
        for name in HashedBlocks.__slots__:
            setattr(other, name, getattr(plain, name))
        other._host, other._stored = self._host.forked(), self._stored.copy()
        return other
