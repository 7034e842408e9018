"""Chunked mixed batches with priorities, with LoRA adapters, or both: vLLM V1's scheduler (checked against 0.24.0).

By priority, waiting requests come in lowest number first, and who finds no block takes the highest number of the batch
out, which may be itself: then those behind it in the batch pause for the step. With adapters, a step has no more of
them than there are slots; a request that would need one more is passed over until a slot is free. Adapters of a step
are in slots of the GPU's memory, the last used ones stay there, and others are copied in from the host's memory, or
read into that first.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush
from typing import Self

from gnomon.sim.serving.base import CALL, NO_REQUEST, ONCE, UNTIL_ARRIVAL, UNTIL_END, Decision, Queue
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.sim.serving.policies.line import WaitingLine
from gnomon.sim.serving.policies.waiting import NO_ADAPTER, Waiting
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class OrderedPolicy(ChunkedPolicy):
    """See `gnomon.sim.serving.base.Policy`. `resumed` has all that wait and that the scheduler can see."""

    __slots__ = ("_by_priority", "_line", "_stalled", "held_s", "resumed")

    leaves_step = False
    """Whether a request that is taken out leaves the rest of its batch in the step, as after vLLM 0.24."""

    resumed: Waiting  # type: ignore[assignment]
    held_s: float

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel) -> None:
        super().__init__(requests, limits, cache)
        self._line = WaitingLine(requests, limits)
        self._by_priority = limits.by_priority
        self.resumed = self._line.waiting
        self._stalled: frozenset[int] = frozenset()
        """Decodes that the last decision left out."""
        self.held_s = 0.0

    @property
    def away(self) -> int:
        return len(self._line.again)

    def add(
        self, prompt: int, output: int, node: int = -1, loaded: bool = False, adapter: int = -1, priority: int = 0
    ) -> int:
        self._line.add(adapter, priority)
        return super().add(prompt, output, node, loaded)

    def forked(self, requests: Requests | None) -> Self:
        waiting, self.resumed = self.resumed, []  # type: ignore[assignment]
        other = super().forked(requests)
        other._line, self.resumed = self._line.forked(requests), waiting
        other.resumed = other._line.waiting
        return other

    @property
    def variant(self) -> int:  # type: ignore[override]
        """Adapters of the decodes."""
        if self._line.slots is None:
            return 0
        adapter = self._line.adapter
        return len({adapter[request] for request in self.decoding} - {NO_ADAPTER})

    def horizon(self, queue: Queue, now: float) -> int:
        if self.partial != NO_REQUEST or not self.decoding or self._stalled:
            return CALL
        room = self.cache.free - self._crossings[self.clock % self._block]
        if room < 0:
            return CALL
        self._line.see(queue, now)
        if self.count >= self._places:
            return UNTIL_END if not self.leaving else ONCE if self.resumed else UNTIL_ARRIVAL
        request = self.resumed.next(self._line.open(self._in_use(0)))
        if request == NO_REQUEST:
            return UNTIL_ARRIVAL
        if self.cache.need(request, self.goal(request)) <= room:
            return CALL
        return ONCE if self.leaving else UNTIL_ARRIVAL if self._by_priority else UNTIL_END

    def decide(self, queue: Queue, now: float) -> Decision:
        self._line.see(queue, now)
        self._stalled, self.held_s, before = frozenset(), 0.0, self._stalled
        need = self._crossings[self.clock % self._block]
        short = self.partial != NO_REQUEST or need > self.cache.free
        if not (self._by_priority and short):
            decision = super().decide(queue, now)
        else:
            decision = self._decide_short(before)
            if not decision.preempted:
                left = self._step_tokens - decision.tokens
                left = self._admit(queue, now, left, decision.chunks, decision.prompts)
                decision = decision._replace(tokens=self._step_tokens - left)
        if self._line.slots and decision.chunks:
            used = self._scheduled(len(decision.prompts))
            self.held_s = self._line.slots.use(used)
            decision = decision._replace(variant=len(used))
        return decision

    def ordered(self) -> Iterator[int]:
        return (request for request in self._stack if request in self.decoding and request not in self._stalled)

    def _scheduled(self, prompts: int) -> set[int]:
        """Adapters of the decodes that run, and of as many of the last of the batch, whose prompts do."""
        if self._line.slots is None:
            return set()
        adapter = self._line.adapter
        found = {adapter[request] for request in self.decoding if request not in self._stalled}
        found.update(adapter[request] for request in self._stack[len(self._stack) - prompts :])
        found.discard(NO_ADAPTER)
        return found

    def _in_use(self, prompts: int) -> set[int]:
        """Adapters that have a slot before requests come in."""
        return self._scheduled(prompts)

    def _admit(self, queue: Queue, now: float, budget: int, chunks: list[tuple[int, int]], prompts: list[int]) -> int:
        line, waiting, scheduled = self._line, self.resumed, self._in_use(len(prompts))
        while budget > 0 and self.count < self._places:
            request = waiting.next(line.open(scheduled))
            if request == NO_REQUEST:
                break
            new, found = self.enter(request, budget)
            if not new:
                break
            waiting.pop()
            line.came_in(request, queue, now, scheduled)
            budget -= new
            chunks.append((new, found))
            prompts.append(request)
        return budget

    def preempt_last(self) -> int:
        leaving = len(self.leaving)
        request = super().preempt_last()
        if len(self.leaving) == leaving:
            self._line.again.add(request)
        return request

    def _decide_short(self, before: frozenset[int]) -> Decision:
        """A call in which blocks may run out: request by request, in the order of the batch, as vLLM does it; `before`
        are those that the last one left out, and have no token in flight."""
        self.sweep()
        batch, at, budget = self._stack[:], 0, self._step_tokens
        runs: dict[int, int] = {}
        preempted: list[int] = []
        while at < len(batch):
            request = batch[at]
            if request in self.leaving:
                at += 1
                continue
            tokens, need = self._wants(request, budget)
            while need > self.cache.free:
                last = max(batch, key=lambda one: (self._line.priority[one], one))
                # vLLM 0.24 does not move back where one before it in the batch is leaving: the next is left out.
                at -= int(last in runs or (self.leaves_step and batch.index(last) < at))
                batch.remove(last)
                ran = runs.pop(last, 0)
                budget += ran
                self._take_out(last, int(ran > 0), before)
                preempted.append(last)
                if last == request:
                    break
            if request in preempted:
                if self.leaves_step:
                    continue
                break
            self.cache.take(need)
            runs[request] = tokens
            budget -= tokens
            at += 1
        return self._as_run(runs, preempted)

    def _wants(self, request: int, budget: int) -> tuple[int, int]:
        """Tokens of a request of the batch, and the new blocks that they take."""
        if request != self.partial:
            base, _ = self.decoding[request]
            return 1, int((base + self.clock) % self._block == 0)
        had = self.partial_tokens
        piece = min(self.goal(request) - had, budget)
        return piece, -(-(had + piece) // self._block) + (-had // self._block)

    def _as_run(self, runs: dict[int, int], preempted: list[int]) -> Decision:
        """The decision in which these run, with their tokens; other decodes pause."""
        chunks: list[tuple[int, int]] = []
        prompts: list[int] = []
        piece = runs.pop(self.partial, 0) if self.partial != NO_REQUEST else 0
        if piece:
            chunks.append((piece, self.partial_tokens))
            prompts.append(self.partial)
            self._count_chunk(piece, self.partial_tokens)
            self.partial_tokens += piece
            self.cache.extend(self.partial, self.partial_tokens)
        context = sum(self.decoding[request][0] for request in runs) + len(runs) * self.clock
        if runs or piece:
            self._stalled = frozenset(self.decoding.keys() - runs.keys())
            for request in self._stalled if runs else ():
                self._stall(request)
        return Decision(len(runs), context, chunks, prompts, preempted, len(runs) + piece)

    def _stall(self, request: int) -> None:
        """A decode does not take part in the step that the clock counts next."""
        base, end = self.decoding[request]
        self.decoding[request] = (base - 1, end + 1)
        self._base_sum -= 1
        self._crossings[-base % self._block] -= 1
        self._crossings[(1 - base) % self._block] += 1
        heappush(self._ends, (end + 1, request))

    def _take_out(self, request: int, ran: int, before: frozenset[int]) -> None:
        """Preempt a request that had `ran` tokens of this call; see `preempt_last`."""
        self._stack.remove(request)
        in_flight = int(self.in_flight and request not in before)
        if request in self.decoding:
            goal, cached = self.goal(request), self._drop(request)
            known = cached + 1 - in_flight if ran else cached - in_flight if cached > goal else cached
            self.cache.preempt(request, cached + ran, known)
            self._made[request] = cached - self._prompt[request] + 1
        elif request == self.partial:
            self.cache.preempt(request, self.partial_tokens, self.partial_tokens)
            self.partial = NO_REQUEST
        else:
            tokens = self.leaving.pop(request)
            self.cache.leave(request, tokens, tokens - in_flight if tokens > self.goal(request) else tokens)
            self.count -= 1
            self.preemptions += 1
            return
        self._line.preempted(request)
        self.count -= 1
        self.preemptions += 1
