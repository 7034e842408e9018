"""SGLang's prefix cache: a radix tree over pages of tokens (checked against 0.5.23).

A node is a run of pages that every sequence below it has in common; it is split where two sequences part. Requests in
the batch lock the path of what they hold. Pages of paths that nobody locks can be evicted: the leaf that was touched
least recently goes first, as a full node, then its parent if that has become a leaf. A prompt enters the tree when its
step's result is processed, a chunk of one before the next step is scheduled, prompt and output together when a request
finishes, with a split between the two; pages that another request has put there meanwhile are freed.

A run is one object however long it is, so what a request costs depends on how it shares. A page is known by a key, the
node of the requests' prefixes that its last token belongs to (`spec.workload.Prefixes`), or `-2 - request` for what
nobody shares.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush

from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

Chain = tuple[tuple[int, int], ...]
"""Keys of a sequence's pages in order, each with the first page behind it."""
ENDLESS = 1 << 60


class RadixNode:
    """Pages from `low` to `high` of the sequences that have this chain."""

    __slots__ = ("chain", "children", "high", "locks", "low", "parent", "time")

    def __init__(self, chain: Chain, low: int, high: int, parent: RadixNode | None, time: int) -> None:
        self.chain, self.low, self.high, self.parent, self.time = chain, low, high, parent, time
        self.children: dict[int, RadixNode] = {}
        self.locks = 0


def common_pages(one: Chain, other: Chain) -> int:
    """Pages that two sequences begin with together."""
    common = 0
    for (key, behind), (other_key, _) in zip(one, other, strict=False):
        if key != other_key:
            break
        common = behind
    return common


def key_at(chain: Chain, page: int) -> int:
    """The key of a page."""
    for key, behind in chain:
        if page < behind:
            return key
    raise AssertionError("the last key of a chain has no end")


class RadixTree:
    """The pages of one replica and what is in them; see `gnomon.sim.serving.caches.base.CacheModel` for `free`, `take`
    and `freed_by`. The rest is between it and SGLang's scheduler. Where it is not `enabled`, pages are only counted."""

    __slots__ = (
        "_blank", "_end", "_heap", "_held", "_node", "_parent", "_protected", "_pushed", "_root", "_time", "block",
        "enabled", "free",
    )  # fmt: skip

    def __init__(self, requests: Requests, limits: ServingLimits, enabled: bool = True) -> None:
        self.block = limits.block_tokens
        self.free = self._blank = limits.kv_blocks
        """`_blank` of the free pages are in no node."""
        self.enabled = enabled
        self._node, self._parent, self._end = prefix_columns(requests)
        self._root = RadixNode((), 0, 0, None, 0)
        self._root.locks = 1
        self._time = self._pushed = 0
        self._heap: list[tuple[int, int, RadixNode]] = []
        """Leaves that can be evicted, by the time of their last touch, among nodes that no longer are."""
        self._held: dict[int, RadixNode] = {}
        """The end of the path that each request in the batch locks."""
        self._protected: dict[int, int] = {}
        """Pages of each request in the batch that are in the tree."""

    def add(self, node: int) -> None:
        """One more request that may come in, and the node of its prefix."""
        self._node.append(node)

    @property
    def root(self) -> RadixNode:
        return self._root

    @property
    def available(self) -> int:
        """Free pages that are in no node."""
        return self._blank

    def chain(self, request: int) -> Chain:
        """Where the pages of a request belong."""
        block, node = self.block, self._node[request]
        found = [(-2 - request, ENDLESS)]
        end = self._end[node] // block if node >= 0 else 0
        while node >= 0:
            above = self._parent[node]
            first = self._end[above] // block if above >= 0 else 0
            if first < end:
                found.append((node, end))
            node, end = above, first
        found.reverse()
        return tuple(found)

    def prefix_nodes(self, request: int, tokens: int) -> list[tuple[int, int]]:
        """The prefixes that a request of so many tokens shares with others, each with its length."""
        found: list[tuple[int, int]] = []
        node = self._node[request]
        while node >= 0:
            found.append((node, min(self._end[node], tokens)))
            node = self._parent[node]
        return found

    def match(self, request: int, pages: int) -> tuple[int, RadixNode]:
        """The pages of a request that are in the tree, up to so many, and the node they end with, which is split there.
        They count as touched."""
        if not self.enabled or pages <= 0 or not self._root.children:
            return 0, self._root
        chain = self.chain(request)
        node = self._walk(chain, pages)
        time = self._tick()
        each: RadixNode | None = node
        while each is not None:
            self._touch(each, time)
            each = each.parent
        return node.high, node

    def unlocked(self, node: RadixNode) -> int:
        """Pages of a path that could be evicted."""
        pages = 0
        each: RadixNode | None = node
        while each is not None and not each.locks:
            pages += each.high - each.low
            each = each.parent
        return pages

    def enter(self, request: int, node: RadixNode) -> None:
        """A request comes in with what it found."""
        if not self.enabled:
            return
        self._lock(node)
        self._held[request], self._protected[request] = node, node.high

    def make_room(self, pages: int) -> None:
        """Evict until so many pages are in no node, or nothing can be evicted."""
        heap = self._heap
        while self._blank < pages and heap:
            time, _, node = heappop(heap)
            parent = node.parent
            if time != node.time or node.locks or node.children or parent is None:
                continue
            self._blank += node.high - node.low
            del parent.children[key_at(node.chain, node.low)]
            node.parent = None
            self._offer(parent)

    def take(self, blocks: int) -> None:
        """Pages for sequences that grow."""
        if blocks > self._blank:
            self.make_room(blocks)
        self._blank -= blocks
        self.free -= blocks

    def checkpoint(self, request: int, tokens: int, prompt: int) -> None:
        """What a request has computed enters the tree; `prompt` tokens of it are its prompt."""
        if not self.enabled:
            return
        pages, chain, protected = tokens // self.block, self.chain(request), self._protected[request]
        known, node = self._insert(chain, pages)
        boundary = prompt // self.block
        if 0 < boundary < pages:
            self._insert(chain, boundary)
        if known > protected:  # somebody else computed the same
            self._blank += known - protected
            self.free += known - protected
        self._lock(node)
        self._unlock(self._held[request])
        self.free += pages - known  # they were the request's own, and are locked with the node
        self._held[request], self._protected[request] = node, pages

    def finish(self, request: int, tokens: int, prompt: int) -> None:
        """A request that holds so many tokens leaves them in the tree."""
        self.checkpoint(request, tokens, prompt)
        self.retract(request, tokens)

    def retract(self, request: int, tokens: int) -> None:
        """A request gives back its pages; what is in the tree stays there until it is evicted."""
        own = -(-tokens // self.block)
        if self.enabled:
            own -= self._protected.pop(request)
            self._unlock(self._held.pop(request))
        self._blank += own
        self.free += own

    def freed_by(self, request: int, tokens: int) -> int:
        """Pages that are free once a request has finished, if nobody else does."""
        own = -(-tokens // self.block)
        if not self.enabled:
            return own
        own -= self._protected[request]
        each: RadixNode | None = self._held[request]
        while each is not None and each is not self._root:
            own += each.high - each.low if each.locks == 1 else 0
            each = each.parent
        return own

    def forked(self, requests: Requests | None) -> RadixTree:
        """A copy as it stands now, to go on by itself with requests of which the first are those known so far."""
        other = object.__new__(RadixTree)
        for name in ("block", "free", "_blank", "enabled", "_time", "_pushed"):
            setattr(other, name, getattr(self, name))
        known = (self._node[:], self._parent, self._end)
        other._node, other._parent, other._end = prefix_columns(requests) if requests else known
        twins: dict[int, RadixNode] = {}
        waiting: list[tuple[RadixNode, RadixNode | None]] = [(self._root, None)]
        while waiting:
            node, parent = waiting.pop()
            twin = RadixNode(node.chain, node.low, node.high, parent, node.time)
            twin.locks = node.locks
            twins[id(node)] = twin
            if parent is not None:
                parent.children[key_at(node.chain, node.low)] = twin
            waiting += [(child, twin) for child in node.children.values()]
        other._root = twins[id(self._root)]
        other._heap = [(time, order, twins[id(node)]) for time, order, node in self._heap if id(node) in twins]
        other._held = {request: twins[id(node)] for request, node in self._held.items()}
        other._protected = self._protected.copy()
        return other

    def _tick(self) -> int:
        self._time += 1
        return self._time

    def _touch(self, node: RadixNode, time: int) -> None:
        node.time = time
        self._offer(node)

    def _offer(self, node: RadixNode) -> None:
        """Remember a node that can be evicted next."""
        if not (node.locks or node.children):
            self._pushed += 1
            heappush(self._heap, (node.time, self._pushed, node))

    def _walk(self, chain: Chain, pages: int) -> RadixNode:
        """The end of the longest path of these pages, which is split where they part from it."""
        node = self._root
        while node.high < pages:
            child = node.children.get(key_at(chain, node.high))
            if child is None:
                break
            shared = min(common_pages(child.chain, chain), pages)
            if shared < child.high:
                return self._split(child, shared)
            node = child
        return node

    def _split(self, node: RadixNode, at: int) -> RadixNode:
        """Cut a node in two; the first part, which is new. The second counts as touched."""
        parent = node.parent
        assert parent is not None
        first = RadixNode(node.chain, node.low, at, parent, self._tick())
        first.locks = node.locks
        first.children[key_at(node.chain, at)] = node
        parent.children[key_at(node.chain, node.low)] = first
        node.parent, node.low = first, at
        self._touch(node, self._tick())
        return first

    def _insert(self, chain: Chain, pages: int) -> tuple[int, RadixNode]:
        """Pages of a sequence enter the tree: how many were there, and the node they end with."""
        node = self._walk(chain, pages)
        known, time = node.high, self._tick()
        each: RadixNode | None = node
        while each is not None:
            self._touch(each, time)
            each = each.parent
        if known < pages:
            last = RadixNode(chain, known, pages, node, self._tick())
            node.children[key_at(chain, known)] = last
            node = last
            self._offer(node)
        return known, node

    def _lock(self, node: RadixNode) -> None:
        each: RadixNode | None = node
        while each is not None and each is not self._root:
            if not each.locks:
                self.free -= each.high - each.low
            each.locks += 1
            each = each.parent

    def _unlock(self, node: RadixNode) -> None:
        each: RadixNode | None = node
        while each is not None and each is not self._root:
            each.locks -= 1
            if not each.locks:
                self.free += each.high - each.low
                self._offer(each)
            each = each.parent


def prefix_columns(requests: Requests) -> tuple[array[int], array[int], array[int]]:
    """Of each request its node, of each node the one above it and its end."""
    prefixes = requests.prefixes
    if prefixes is None:
        return array("q", [-1]) * len(requests), array("q"), array("q")
    return array("q", prefixes.node.tolist()), array("q", prefixes.parent.tolist()), array("q", prefixes.end.tolist())
