"""Prefix caching by hashed blocks, as vLLM V1 does it (checked against 0.24.0).

A block that is full has the hash of its tokens and of all before them. A request that comes in holds the blocks of its
longest known beginning, but for its last token, and computes the rest. Blocks that nobody holds stay where they are
until they are needed: those without a hash go first, then those that were given back first, the last block of a
sequence before the ones in front of it. Equal blocks that two requests computed side by side are both kept; the one
that was there first is found.

Where requests share nothing, only one that was preempted can find anything: unless one waits, blocks are only counted.
Blocks are not walked one by one: a `Segment` is a run of consecutive blocks of one beginning that are held by the same
requests, so what a request costs depends on how it shares, not on how long it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from gnomon.sim.serving.caches.base import NO_ROOM
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests, by_adapter

Chain = list[tuple[int, int, int]]
"""Where the blocks of a sequence belong, in order: a key, and the first block that is not before and not behind it."""
ENDLESS = 1 << 60


class Segment:
    """Consecutive blocks of one key, all held by as many requests. Where nobody holds it, it is in the queue of those
    that may be evicted, between `before` and `after`, and its last block goes first."""

    __slots__ = ("after", "before", "high", "holders", "key", "low", "rest")

    def __init__(self, key: int, low: int, high: int, holders: int, rest: Segment | None = None) -> None:
        self.key, self.low, self.high, self.holders, self.rest = key, low, high, holders, rest
        self.before: Segment = self
        self.after: Segment = self

    def pieces(self, high: int) -> Iterator[Segment]:
        """The segment and those that were split off it, up to a block."""
        piece: Segment | None = self
        while piece is not None and piece.low < high:
            yield piece
            piece = piece.rest

    def unlink(self) -> None:
        self.before.after, self.after.before = self.after, self.before


class HashedBlocks:
    """Blocks with what is in them; see `gnomon.sim.serving.caches.base.CacheModel`.

    Keys are the nodes of the requests' prefixes, and `-2 - request` for what is a request's own: that is found again
    only by itself, after it was preempted.
    """

    __slots__ = (
        "_apart", "_away", "_blank", "_end", "_held", "_known", "_node", "_parent", "_queue", "_segments", "_shared",
        "_tracks", "block", "free",
    )  # fmt: skip

    def __init__(self, requests: Requests, limits: ServingLimits) -> None:
        self.block = limits.block_tokens
        self.free = self._blank = limits.kv_blocks
        """`_blank` of the free blocks have nothing in them that could be found."""
        self._shared = self._tracks = requests.prefixes is not None
        """Whether a request could find what others computed, and whether anybody could find anything now."""
        self._away: set[int] = set()
        """Requests that were preempted and have something here that they computed themselves and do not hold."""
        self._apart = limits.adapter_slots > 0
        """Whether only requests of one adapter share."""
        self._node, self._parent, self._end = _tree(requests, self._apart)
        self._segments: dict[int, list[Segment]] = {}
        """By key, in the order in which their blocks were first computed."""
        self._held: dict[int, list[tuple[Segment, int]]] = {}
        """What each request in the batch holds, in order, and up to which block of each."""
        self._known: dict[int, int] = {}
        """How many of its blocks have a hash."""
        self._queue = Segment(-1, 0, 0, 0)
        """The next to be evicted is after it, the last before it."""

    def add(self, node: int) -> None:
        self._node.append(node)

    def need(self, request: int, goal: int) -> int:
        if not self._tracks:
            return -(-goal // self.block)
        found, _, unheld = self._find(request, (goal - 1) // self.block)
        return -(-goal // self.block) - found + unheld

    def peek(self, request: int, goal: int) -> int:
        return self._find(request, (goal - 1) // self.block)[0] * self.block if self._tracks else 0

    def enter(self, request: int, goal: int, budget: int) -> int:
        block = self.block
        if not self._tracks:
            if -(-goal // block) > self.free:
                return NO_ROOM
            self.free -= -(-(goal if goal < budget else budget) // block)
            return 0
        found, pieces, unheld = self._find(request, (goal - 1) // block)
        if -(-goal // block) - found + unheld > self.free:
            return NO_ROOM
        for segment, high in pieces:
            self._hold(segment, high)
        self._held[request] = pieces
        self._known[request] = found
        cached = found * block
        tokens = goal if goal - cached < budget else cached + budget
        self.take(-(-tokens // block) - found)
        self.extend(request, tokens)
        if request in self._away and all(one.holders for one in self._segments.get(-2 - request, ())):
            self._away.discard(request)
            if not (self._away or self._shared):
                self._forget()
        return cached

    def take(self, blocks: int) -> None:
        self.free -= blocks
        if not self._tracks:
            return
        self._blank -= blocks
        if self._blank < 0:
            self._evict(-self._blank)
            self._blank = 0

    def extend(self, request: int, tokens: int) -> None:
        known, high = self._known.get(request, ENDLESS), tokens // self.block
        if high <= known:  # with ENDLESS: it came in before anything was tracked, and counts when it leaves
            return
        self._known[request] = high
        held = self._held[request]
        own = -2 - request
        if held:
            last, _ = held[-1]
            if last.key == own and last.holders == 1 and last.high == known and last.rest is None:
                last.high = high
                held[-1] = (last, high)
                return
        for key, first, behind in self._chain(request):
            low, end = max(first, known), min(behind, high)
            if low < end:
                segment = Segment(key, low, end, 1)
                self._segments.setdefault(key, []).append(segment)
                held.append((segment, end))

    def preempt(self, request: int, tokens: int, known: int) -> None:
        if not self._tracks:
            self._tracks, self._blank = True, self.free
        self.leave(request, tokens, known)
        self._away.add(request)

    def leave(self, request: int, tokens: int, known: int) -> None:
        if not self._tracks:
            self.free += -(-tokens // self.block)
            return
        if request not in self._known:
            self._known[request], self._held[request] = 0, []
        self._away.discard(request)
        self.extend(request, known)
        blank = -(-tokens // self.block) - self._known.pop(request)
        self._blank += blank
        self.free += blank
        queue = self._queue
        for segment, high in reversed(self._held.pop(request)):
            pieces = [segment] if segment.high >= high else list(segment.pieces(high))
            for piece in reversed(pieces):
                piece.holders -= 1
                if not piece.holders:
                    self.free += piece.high - piece.low
                    last = queue.before
                    piece.before, piece.after = last, queue
                    last.after = queue.before = piece

    def freed_by(self, request: int, tokens: int) -> int:
        shared = 0
        for segment, high in self._held.get(request, ()):
            shared += sum(piece.high - piece.low for piece in segment.pieces(high) if piece.holders > 1)
        return -(-tokens // self.block) - shared

    def forked(self, requests: Requests | None) -> HashedBlocks:
        other = object.__new__(HashedBlocks)
        other._apart = self._apart
        other.block, other.free, other._blank, other._tracks = self.block, self.free, self._blank, self._tracks
        other._shared, other._away = self._shared, self._away.copy()
        known = (self._node[:], self._parent, self._end)
        other._node, other._parent, other._end = _tree(requests, self._apart) if requests else known
        other._known = self._known.copy()
        twin = {id(each): Segment(each.key, each.low, each.high, each.holders) for each in self._all()}
        for each in self._all():
            if each.rest is not None:
                twin[id(each)].rest = twin.get(id(each.rest))
        other._segments = {key: [twin[id(each)] for each in segments] for key, segments in self._segments.items()}
        other._held = {request: [(twin[id(each)], high) for each, high in held] for request, held in self._held.items()}
        other._queue = last = Segment(-1, 0, 0, 0)
        each = self._queue.after
        while each is not self._queue:
            copied = twin[id(each)]
            copied.before, last.after = last, copied
            each, last = each.after, copied
        last.after, other._queue.before = other._queue, last
        return other

    def _forget(self) -> None:
        """Nobody could find anything: until the next request is preempted, blocks are only counted. What is free then
        goes before what that one leaves, as it was given back earlier."""
        self._tracks = False
        self._segments, self._held, self._known = {}, {}, {}
        self._queue = Segment(-1, 0, 0, 0)

    def _all(self) -> Iterator[Segment]:
        for segments in self._segments.values():
            yield from segments

    def _chain(self, request: int) -> Chain:
        """Where the blocks of a request belong: the nodes above its own, its own, then what nobody shares."""
        block, node = self.block, self._node[request]
        if node < 0:
            return [(-2 - request, 0, ENDLESS)]
        end = self._end[node] // block
        found = [(-2 - request, end, ENDLESS)]
        while node >= 0:
            above = self._parent[node]
            first = self._end[above] // block if above >= 0 else 0
            if first < end:
                found.append((node, first, end))
            node, end = above, first
        found.reverse()
        return found

    def _find(self, request: int, most: int) -> tuple[int, list[tuple[Segment, int]], int]:
        """The blocks that a request finds, up to so many: how many, the segments they are in and up to which block of
        each, and how many of them nobody holds."""
        at = unheld = 0
        pieces: list[tuple[Segment, int]] = []
        for key, _, behind in self._chain(request):
            segments = self._segments.get(key)
            end = behind if behind < most else most
            while segments and at < end:
                found = None
                high = end
                for segment in segments:
                    if segment.low <= at < segment.high:
                        found = segment
                        break
                    if at < segment.low < high:  # computed earlier than what is found, but begins later
                        high = segment.low
                if found is None:
                    return at, pieces, unheld
                if found.high < high:
                    high = found.high
                pieces.append((found, high))
                if not found.holders:
                    unheld += high - at
                at = high
            if at < end or at >= most:
                break
        return at, pieces, unheld

    def _hold(self, segment: Segment, high: int) -> None:
        """One more request holds a segment's blocks below `high`; the others are split off."""
        if high < segment.high:
            rest = segment.rest = Segment(segment.key, high, segment.high, segment.holders, segment.rest)
            segment.high = high
            segments = self._segments[segment.key]
            segments.insert(segments.index(segment) + 1, rest)
            if not segment.holders:
                rest.before, rest.after = segment.before, segment
                segment.before.after = segment.before = rest
        if not segment.holders:
            segment.unlink()
            self.free -= segment.high - segment.low
        segment.holders += 1

    def _evict(self, blocks: int) -> None:
        """Forget what is in so many blocks that nobody holds."""
        queue = self._queue
        while blocks:
            segment = queue.after
            size = segment.high - segment.low
            if size > blocks:
                segment.high -= blocks
                return
            blocks -= size
            segment.unlink()
            segments = self._segments[segment.key]
            if len(segments) == 1:
                del self._segments[segment.key]
            else:
                segments.remove(segment)


def _tree(requests: Requests, apart: bool) -> tuple[array[int], array[int], array[int]]:
    """Of each request its node, of each node the one above it and its end."""
    prefixes = requests.prefixes
    if apart and prefixes is not None and requests.adapter is not None:
        prefixes = by_adapter(prefixes, requests.adapter)
    if prefixes is None:
        return array("q", [-1]) * len(requests), array("q"), array("q")
    return array("q", prefixes.node.tolist()), array("q", prefixes.parent.tolist()), array("q", prefixes.end.tolist())
