"""Blocks of the KV cache in the host's memory, as vLLM 0.24's CPUOffloadingManager keeps them with its LRU policy.

A block that is being copied to the host can be neither read nor evicted until the scheduler has heard that it is there;
one that is being copied back is not evicted. Among the others, the one that was used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

Place = tuple[int, int]
"""A key of a sequence's chain, and the number of a block."""
LATER = -1
"""Instead of a number of blocks: ask again in a later call."""


class HostBlocks:
    """Which blocks the host has."""

    __slots__ = ("_idle", "_loading", "_size", "_storing")

    def __init__(self, size: int) -> None:
        self._size = size
        self._idle: OrderedDict[Place, None] = OrderedDict()
        """The block that was used longest ago first."""
        self._storing: set[Place] = set()
        self._loading: set[Place] = set()

    def __len__(self) -> int:
        return len(self._idle) + len(self._storing) + len(self._loading)

    def lookup(self, places: Iterable[Place]) -> int:
        """How many of these are here before the first that is not; LATER where some of them are on their way in or
        out."""
        count = 0
        moving = False
        for place in places:
            if place not in self._idle:
                if place not in self._storing and place not in self._loading:
                    break
                moving = True
            count += 1
        return LATER if moving else count

    def touch(self, places: Sequence[Place]) -> None:
        """These were used, the first of them last."""
        idle = self._idle
        for place in reversed(places):
            if place in idle:
                idle.move_to_end(place)

    def store(self, places: Collection[Place]) -> list[Place] | None:
        """Begin to copy here what of these is missing, which it answers with; nothing where too few blocks may be
        evicted for it: none of these is."""
        idle = self._idle
        new = [one for one in places if one not in idle and one not in self._storing and one not in self._loading]
        more = len(new) + len(self) - self._size
        if more > 0:
            if more > len(idle):
                return None
            kept = set(places)
            gone = list(islice((one for one in idle if one not in kept), more))
            if len(gone) < more:
                return None
            for place in gone:
                del idle[place]
        self._storing.update(new)
        return new

    def stored(self, places: Sequence[Place]) -> None:
        """A copy to the host has ended. In vLLM its blocks are in the order of a set, which is any."""
        for place in reversed(places):
            self._storing.remove(place)
            self._idle[place] = None

    def load(self, places: Iterable[Place]) -> None:
        """Begin to copy these to the GPU."""
        for place in places:
            del self._idle[place]
            self._loading.add(place)

    def loaded(self, places: Sequence[Place]) -> None:
        """That copy has ended."""
        for place in reversed(places):
            self._loading.remove(place)
            self._idle[place] = None

    def forked(self) -> HostBlocks:
        other = HostBlocks(self._size)
        other._idle, other._storing, other._loading = self._idle.copy(), self._storing.copy(), self._loading.copy()
        return other
