"""Blocks that requests with equal beginnings share, as TensorRT-LLM 1.2 keeps them (`kvCacheManager.cpp`).

They are the hashed blocks of `sim/serving/caches/hashed.py` but for three rules. A request takes the blocks of its
whole prompt when its first chunk runs (`KVCacheManager::addSequence`). What it will find does not count when the
scheduler asks whether it fits (`getNeededBlocksOneStep`, `getRemainingBlocksToCompletion`). And its blocks can be
found once its whole prompt is computed (`storeContextBlocks`), not chunk by chunk.

Not followed: blocks that match only in part are found up to the last whole block (`enable_partial_reuse` copies the
rest), and blocks that nobody can find go before those that were given back earlier.
"""

from __future__ import annotations

from gnomon.sim.serving.caches.base import NO_ROOM
from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.spec.workload import Requests

Place = tuple[int, int]
"""A block that several requests may compute: whose beginning it is of, and where."""


class ReusedBlocks(HashedBlocks):
    """See `gnomon.sim.serving.caches.base.CacheModel`."""

    __slots__ = ()

    def need(self, request: int, goal: int) -> int:
        return -(-goal // self.block)

    def enter(self, request: int, goal: int, budget: int) -> int:
        """The budget plays no part: all blocks of the prompt are taken at once."""
        blocks = -(-goal // self.block)
        if blocks > self.free:
            return NO_ROOM
        if not self._tracks:
            self.free -= blocks
            return 0
        found, pieces, _ = self._find(request, (goal - 1) // self.block)
        for segment, high in pieces:
            self._hold(segment, high)
        self._held[request], self._known[request] = pieces, found
        self.take(blocks - found)
        return found * self.block

    def first_new(self, request: int, goal: int) -> Place | None:
        """The first block of a prompt that is not in the cache; nothing where no other request could compute it."""
        most = (goal - 1) // self.block
        if not self._tracks or self._node[request] < 0:
            return None
        found, _, _ = self._find(request, most)
        if found >= most:
            return None
        key = next(key for key, first, behind in self._chain(request) if first <= found < behind)
        return (key, found) if key >= 0 else None

    def forked(self, requests: Requests | None) -> ReusedBlocks:
        other = super().forked(requests)
        other.__class__ = ReusedBlocks
        assert isinstance(other, ReusedBlocks)
        return other
