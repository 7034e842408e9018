"""Chunked mixed batches over a cache with a second tier in the host's memory: vLLM 0.24 with native KV offloading.

A request whose blocks the host has is given blocks of the GPU, and waits until they are copied, one request after the
other; others come in meanwhile. It takes a place once the scheduler has heard of the copy, with the outputs of a
step that was launched after it. Copies to the host run beside all else and cost nothing here.
"""

from __future__ import annotations

from typing import Self

from gnomon.sim.serving.base import CALL, ONCE, Queue
from gnomon.sim.serving.caches.base import NO_ROOM
from gnomon.sim.serving.caches.tiered import TieredBlocks
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class Copies(list[int]):
    """Preempted requests, and those that wait for a copy: when it ends, the tokens that are computed then, and the
    blocks that it has."""

    def __init__(self, preempted: list[int] | None = None) -> None:
        super().__init__(preempted or ())
        self.loading: dict[int, tuple[float, int, int]] = {}
        self.heard: set[int] = set()
        """Whose copy has ended as the last call saw it."""

    def __bool__(self) -> bool:
        return bool(len(self) or self.loading)

    def copied(self) -> Copies:
        other = Copies(list(self))
        other.loading, other.heard = self.loading.copy(), self.heard.copy()
        return other


class OffloadingPolicy(ChunkedPolicy):
    """See `gnomon.sim.serving.base.Policy`."""

    __slots__ = ("_again", "_block_s", "_copy_s", "_free_s", "_lookahead")

    cache: TieredBlocks
    resumed: Copies

    def __init__(self, requests: Requests, limits: ServingLimits, cache: TieredBlocks) -> None:
        super().__init__(requests, limits, cache)
        self.resumed = Copies()
        self._block_s, self._copy_s = limits.host_block_s, limits.host_copy_s
        self._free_s = 0.0
        """When the link is free."""
        self._again: set[int] = set()
        self._lookahead = limits.lookahead

    def forked(self, requests: Requests | None) -> Self:
        other = super().forked(requests)
        other.resumed, other._again = self.resumed.copied(), self._again.copy()
        return other

    def horizon(self, queue: Queue, now: float) -> int:
        often, copies = self._next(queue, now), self.resumed
        if often != CALL and self.count < self._places:
            request = copies[-1] if len(copies) else queue.head if queue.visible_s[queue.head] <= now else -1
            if request >= 0:  # who waits for room is asked for in every call, and so used last
                self.cache.outside(request, self.goal(request))
        return ONCE if often != CALL and copies.loading else often

    def _next(self, queue: Queue, now: float) -> int:
        copies = self.resumed
        if copies.heard or any(ready <= now for ready, *_ in copies.loading.values()):
            return CALL
        if not len(copies) and copies.loading:  # only arrivals matter
            if self.partial >= 0 or not self.decoding or queue.visible_s[queue.head] <= now:
                return CALL
            return ONCE if self.cache.free >= self._crossings[self.clock % self._block] else CALL
        return super().horizon(queue, now)

    def preempt_last(self) -> int:
        request = super().preempt_last()
        self._again.add(request)
        return request

    def _admit(self, queue: Queue, now: float, budget: int, chunks: list[tuple[int, int]], prompts: list[int]) -> int:
        copies, visible = self.resumed, queue.visible_s
        budget = self._admit_copied(queue, now, budget, chunks, prompts)
        while budget > 0 and self.count < self._places:
            preempted = len(copies) > 0
            if preempted:
                request = copies[-1]
            elif visible[queue.head] <= now:
                request = queue.head
            else:
                break
            goal = self.goal(request)
            outside = self.cache.outside(request, goal)
            if outside:
                new = self._load(request, goal, outside, now)
            else:
                new, found = self.enter(request, budget)
            if not new:
                break
            if preempted:
                copies.pop()
            else:
                queue.head = request + 1
            if outside:
                continue
            self._note(queue, request, now)
            budget -= new
            chunks.append((new, found))
            prompts.append(request)
        return budget

    def _note(self, queue: Queue, request: int, now: float) -> None:
        if request in self._again:
            self._again.discard(request)
        else:
            queue.scheduled_s[request] = now

    def _load(self, request: int, goal: int, outside: int, now: float) -> int:
        """Begin a copy; its tokens, none where there is no room for the whole request beside what others that compute
        or copy their prompts still need."""
        if self.cache.need(request, goal) + self._reserved() > self.cache.free:
            return 0
        found = self.cache.enter(request, goal, outside * self._block)
        if found == NO_ROOM:
            return 0
        self._free_s = ready = max(now, self._free_s) + self._copy_s + outside * self._block_s
        self._least_free = min(self._least_free, self.cache.free)
        copied = found + outside * self._block
        tokens = min(copied, goal - 1)  # the last one is computed again where the copy has it
        self.resumed.loading[request] = (ready, tokens, copied // self._block)
        if request not in self._made:
            self.cached[request] = tokens
        return outside

    def _reserved(self) -> int:
        """Blocks that prompts which are begun, or wait for a copy, have not taken yet."""
        block = self._block
        begun = [(one, held) for one, (_, _, held) in self.resumed.loading.items()]
        if self.partial >= 0:
            begun.append((self.partial, -(-self.partial_tokens // block)))
        return sum(max(-(-self.goal(one) // block) - held, 0) for one, held in begun)

    def _admit_copied(
        self, queue: Queue, now: float, budget: int, chunks: list[tuple[int, int]], prompts: list[int]
    ) -> int:
        """Let requests in whose copy has ended, in the order of their copies."""
        copies, block = self.resumed, self._block
        heard, before = {one for one, (ready, *_) in copies.loading.items() if ready <= now}, copies.heard
        for request in [one for one in copies.loading if one in (before if self._lookahead else heard)]:
            if budget <= 0 or self.count >= self._places:
                break
            goal, (_, tokens, held) = self.goal(request), copies.loading[request]
            new = min(goal - tokens, budget)
            need = max(-(-(tokens + new) // block) - held, 0)
            if need > self.cache.free:
                break
            del copies.loading[request]
            heard.discard(request)
            self.cache.take(need)
            self.cache.extend(request, tokens + new)
            if tokens + new < goal:
                self.partial, self.partial_tokens = request, tokens + new
            self.count += 1
            self._stack.append(request)
            self._count_chunk(new, tokens)
            self._note(queue, request, now)
            budget -= new
            chunks.append((new, tokens))
            prompts.append(request)
        copies.heard = heard
        return budget
