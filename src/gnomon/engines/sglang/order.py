"""In which order SGLang tries the requests that wait: its `SchedulePolicy` (checked against 0.5.23)."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.engines.sglang.policy import PrefillFirst

ORDERS = ("fcfs", "lpm", "lof")
"""First come first served, longest prefix match, longest output first."""
MOST_MATCHED = 128
"""WAITING_QUEUE_PREFIX_MATCH_MAX: of a longer queue no prefixes are compared."""
REFRESH_EVERY = 32
"""WAITING_PREFIX_REFRESH_INTERVAL: attempts between two times that what waiting requests would find is touched."""
SHORT_MATCH, SHARED_PROMPT = 32, 32
"""IN_BATCH_PREFIX_CACHING_*_THRESHOLD: a request that finds no more than this, and shares as much with one before it,
waits for that one."""


class Order:
    """Sorts the queue in place, and refreshes what it would find in the cache."""

    __slots__ = ("_name", "_radix", "_refreshes", "longest_output")

    def __init__(self, name: str, radix: bool, longest_output: int) -> None:
        self._name = name if radix or name != "lpm" else "fcfs"
        self._radix = radix
        self._refreshes = 0
        self.longest_output = longest_output
        """Of all requests."""

    def forked(self, longest_output: int) -> Order:
        other = copy(self)
        other.longest_output = longest_output or self.longest_output
        return other

    def add(self, output: int) -> None:
        self.longest_output = max(self.longest_output, output)

    def sort(self, state: PrefillFirst) -> None:
        """One attempt begins."""
        waiting = state.resumed
        if self._name == "lpm" and len(waiting) <= MOST_MATCHED:
            matched, later = self._matches(state)
            waiting.sort(key=lambda each: 1.0 if each in later else -matched[each])
            return
        if self._name == "lof":
            waiting.sort(key=lambda each: -state.output(each))
        if self._radix and waiting:
            if self._refreshes % REFRESH_EVERY == 0:
                for request in reversed(waiting[:MOST_MATCHED]):
                    state.cache.match(request, state.goal(request) // state.cache.block)
            self._refreshes += 1

    def _matches(self, state: PrefillFirst) -> tuple[dict[int, int], set[int]]:
        """What each request finds, and those that should wait for another one's prompt to be computed."""
        cache = state.cache
        matched: dict[int, int] = {}
        later: set[int] = set()
        longest: dict[int, int] = {}
        for request in state.resumed:
            goal = state.goal(request)
            pages, _ = cache.match(request, goal // cache.block)
            matched[request] = min(pages * cache.block, goal - 1)
            if pages * cache.block > SHORT_MATCH:
                continue
            nodes = cache.prefix_nodes(request, goal)
            shared = max((min(longest.get(node, 0), tokens) for node, tokens in nodes), default=0)
            if shared >= SHARED_PROMPT:
                later.add(request)
                continue
            for node, tokens in nodes:
                longest[node] = max(longest.get(node, 0), tokens)
        return matched, later
