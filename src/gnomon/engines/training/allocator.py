"""PyTorch's caching allocator on a card: blocks cut from segments, kept when freed, given back only in need.

As CUDACachingAllocator.cpp has it (PyTorch 2.11, without expandable segments): sizes are rounded to 512 bytes; up to
1 MiB they share segments of 2 MiB, up to 10 MiB segments of 20 MiB, and larger ones get a segment of their own, rounded
to 2 MiB. A request takes the smallest free block that holds it, and cuts off what is left, unless that is 1 MiB or
less; freed blocks join their free neighbours in the segment. Where the card has no room for a new segment, segments
that are free as a whole are given back first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import count
from math import inf

MIB = 2**20
ROUND, SMALL, SMALL_SEGMENT = 512, MIB, 2 * MIB
MIDDLE, MIDDLE_SEGMENT, LARGE_ROUND = 10 * MIB, 20 * MIB, 2 * MIB


class OutOfMemory(Exception):
    """No room for a segment after all that is free was given back."""


@dataclass(slots=True, eq=False)
class MemoryBlock:
    """A part of a segment, in use or free, and its neighbours in it."""

    size: int
    small: bool
    before: MemoryBlock | None = None
    after: MemoryBlock | None = None
    free: bool = False
    place: int = 0
    """Its number among the free ones."""


Free = tuple[int, int, MemoryBlock]


@dataclass(slots=True, eq=False)
class CachingAllocator:
    """What is allocated and reserved of so many bytes, now and at most."""

    capacity_bytes: float = inf
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    most_allocated_bytes: int = 0
    most_reserved_bytes: int = 0
    _pools: dict[bool, list[Free]] = field(default_factory=lambda: {True: [], False: []})
    _numbers: count[int] = field(default_factory=count)

    def allocate(self, size_bytes: float) -> MemoryBlock | None:
        """A block of at least so many bytes; raises `OutOfMemory`."""
        if size_bytes <= 0:
            return None
        size = -(-int(size_bytes) // ROUND) * ROUND
        small = size <= SMALL
        pool = self._pools[small]
        place = bisect_left(pool, (size,))
        block = pool.pop(place)[-1] if place < len(pool) else self._segment(size, small)
        block.free = False
        rest = block.size - size
        if rest >= ROUND if small else rest > SMALL:
            self._cut(block, size)
        self.allocated_bytes += block.size
        self.most_allocated_bytes = max(self.most_allocated_bytes, self.allocated_bytes)
        return block

    def release(self, block: MemoryBlock | None) -> None:
        """Frees a block: it stays reserved."""
        if block is None:
            return
        self.allocated_bytes -= block.size
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._taken(other)
                first, second = (other, block) if other is block.before else (block, other)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                block = first
        self._keep(block)

    def _segment(self, size: int, small: bool) -> MemoryBlock:
        wanted = SMALL_SEGMENT if small else MIDDLE_SEGMENT
        if size >= MIDDLE:
            wanted = -(-size // LARGE_ROUND) * LARGE_ROUND
        if self.reserved_bytes + wanted > self.capacity_bytes:
            self._give_back()
        if self.reserved_bytes + wanted > self.capacity_bytes:
            raise OutOfMemory
        self.reserved_bytes += wanted
        self.most_reserved_bytes = max(self.most_reserved_bytes, self.reserved_bytes)
        return MemoryBlock(wanted, small)

    def _give_back(self) -> None:
        for small, pool in self._pools.items():
            whole = [free for free in pool if free[-1].before is None and free[-1].after is None]
            self.reserved_bytes -= sum(size for size, *_ in whole)
            self._pools[small] = [free for free in pool if free[-1].before is not None or free[-1].after is not None]

    def _cut(self, block: MemoryBlock, size: int) -> None:
        rest = MemoryBlock(block.size - size, block.small, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._keep(rest)

    def _keep(self, block: MemoryBlock) -> None:
        block.free, block.place = True, next(self._numbers)
        insort(self._pools[block.small], (block.size, block.place, block))

    def _taken(self, block: MemoryBlock) -> None:
        pool = self._pools[block.small]
        pool.pop(bisect_left(pool, (block.size, block.place)))
