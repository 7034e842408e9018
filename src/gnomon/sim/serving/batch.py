"""The requests that hold a place in the batch, and those that were preempted."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from copy import copy
from heapq import heappop, heappush
from typing import Self

import numpy as np

from gnomon.sim.serving.base import NO_REQUEST, Decision
from gnomon.sim.serving.caches.base import NO_ROOM, CacheModel
from gnomon.sim.serving.run import StepTotals
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Ints, Requests


def as_array(column: Ints | Sequence[int]) -> array[int]:
    """A column of requests whose numbers are objects only while they are used."""
    return array("q", np.asarray(column, np.int64).tobytes())


def grown(known: array[int], requests: Requests | None) -> array[int]:
    """A copy of a column, with zeros for requests that are new."""
    return known + array("q", bytes(8 * (len(requests) - len(known)) if requests else 0))


class BatchState:
    """Places, and what each request has computed: what policies with decodes that move together share. Knows tokens,
    not time.

    All decodes move together, so the context of one is `base + clock`, where `clock` counts the steps
    of decodes scheduled so far: a step, or a hundred, touches no request. A decode takes a new block when its
    context is a multiple of the block; `_crossings` counts the decodes that do so at each residue of
    the clock.
    """

    __slots__ = (
        "_base_sum", "_block", "_crossings", "_decode_context", "_decodes", "_ends", "_least_free", "_made",
        "_output", "_places", "_prefill_context", "_prefill_pairs", "_prefill_steps", "_prefill_tokens", "_prefills",
        "_prompt", "_stack", "_stack_limit", "_step_tokens", "_total", "cache", "cached", "clock", "count", "decoding",
        "in_flight", "leaving", "loaded", "partial", "partial_tokens", "preemptions", "resumed",
    )  # fmt: skip

    variant = 0
    held_s = 0.0

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel) -> None:
        self._prompt, self._output = as_array(requests.input_tokens), as_array(requests.output_tokens)
        self._block, self._places, self._step_tokens = limits.block_tokens, limits.max_sequences, limits.max_step_tokens
        self.cache = cache
        self._total = self._least_free = limits.kv_blocks
        self._crossings = [0] * limits.block_tokens
        self._base_sum = 0
        self._ends: list[tuple[int, int]] = []
        self._made: dict[int, int] = {}
        self._stack: list[int] = []
        """The batch in its order, among requests that have left it since; swept when it grows."""
        self._stack_limit = 2 * limits.max_sequences + 64
        self.clock = self.count = self.preemptions = 0
        self._decodes = self._decode_context = 0
        self._prefills = self._prefill_tokens = self._prefill_pairs = self._prefill_context = self._prefill_steps = 0
        self.decoding: dict[int, tuple[int, int]] = {}
        """Base and the clock after the last step, of each decode."""
        self.partial, self.partial_tokens = NO_REQUEST, 0
        """The request whose prompt is not through yet (at most one, the last of the batch), and its cached tokens."""
        self.leaving: dict[int, int] = {}
        """Tokens of the requests that only wait for their last token."""
        self.resumed: list[int] = []
        """Preempted requests, the next to come back last; they go before all new ones."""
        self.in_flight = False
        """Whether a step is in flight whose outputs are not known yet; the loop says so."""
        self.loaded: set[int] = set()
        """Requests that wait and whose keys and values were sent here, all but those of their last token."""
        self.cached = array("q", bytes(8 * len(requests)))
        """Tokens that each request found in the cache when it last came in before its first token."""

    def forked(self, requests: Requests | None) -> Self:
        """A copy of the batch, to go on by itself with requests of which the first are those known so far."""
        other = copy(self)
        known = (requests.input_tokens, requests.output_tokens) if requests else ((), ())
        other._prompt, other._output = (as_array(column) for column in known)
        other._crossings, other._ends, other._stack = self._crossings[:], self._ends[:], self._stack[:]
        other._made, other.decoding = self._made.copy(), self.decoding.copy()
        other.leaving, other.resumed = self.leaving.copy(), self.resumed[:]
        other.cached, other.cache = grown(self.cached, requests), self.cache.forked(requests)
        other.loaded = self.loaded.copy()
        return other

    def add(
        self, prompt: int, output: int, node: int = -1, loaded: bool = False, adapter: int = -1, priority: int = 0
    ) -> int:
        """One more request that may come in; its index."""
        self._prompt.append(prompt)
        self._output.append(output)
        self.cached.append(0)
        self.cache.add(node)
        if loaded:
            self.loaded.add(len(self._prompt) - 1)
        return len(self._prompt) - 1

    def share(self, other: BatchState) -> None:
        """Requests, cache and what waits are those of another batch of the same scheduler."""
        self._prompt, self._output, self._made = other._prompt, other._output, other._made
        self.cache, self.resumed, self.cached, self.loaded = other.cache, other.resumed, other.cached, other.loaded

    def limit_places(self, most: int) -> None:
        """So many requests may hold a place from now on."""
        self._places = most

    @property
    def away(self) -> int:
        """Requests that were preempted and are not back."""
        return len(self.resumed)

    @property
    def peak_blocks(self) -> int:
        """The most blocks that were ever taken."""
        return self._total - self._least_free

    def totals(self) -> StepTotals:
        """Sums over all steps, once all requests have ended."""
        return StepTotals(
            steps=self.clock + self._prefill_steps,
            decodes=self._decodes,
            decode_context=self._decode_context,
            prefills=self._prefills,
            prefill_tokens=self._prefill_tokens,
            prefill_pairs=self._prefill_pairs,
            prefill_context=self._prefill_tokens + self._prefill_context,
        )

    @property
    def context(self) -> int:
        """Cached tokens of all decodes together."""
        return self._base_sum + len(self.decoding) * self.clock

    def goal(self, request: int) -> int:
        """Tokens to compute before the request makes its next one: its prompt, and what it made before."""
        return self._prompt[request] + (self._made.get(request, 0) if self._made else 0)

    def enter(self, request: int, budget: int) -> tuple[int, int]:
        """Give a waiting request a place, and blocks for its first tokens, as many as the budget has. Returns how many
        are computed now and how many were found in the cache; nothing is computed where there are no blocks for all of
        them."""
        goal, made = self._prompt[request], self._made
        if made:
            goal += made.get(request, 0)
        loaded = request in self.loaded if self.loaded else False
        found = self.cache.enter(request, goal, goal if loaded else budget)
        if found == NO_ROOM:
            return 0, 0
        if loaded:
            self.loaded.discard(request)
            found = goal - 1
        new = goal - found
        if new > budget:
            new = budget
            self.partial, self.partial_tokens = request, found + new
        self.count += 1
        self._stack.append(request)
        self._prefills += 1
        self._prefill_tokens += new
        self._prefill_pairs += new * (new + 1) // 2
        if found:
            self._prefill_pairs += new * found
            self._prefill_context += found
        if (found or self.preemptions) and not loaded and request not in made:
            self.cached[request] = found
        return new, found

    def _count_chunk(self, new: int, cached: int) -> None:
        self._prefills += 1
        self._prefill_tokens += new
        self._prefill_pairs += new * cached + new * (new + 1) // 2
        self._prefill_context += cached

    def to_next_end(self) -> tuple[int, int]:
        """Decode steps until one of them finishes a request, and as many of them as find blocks. There must be one."""
        ends, decoding = self._ends, self.decoding
        end, request = ends[0]
        while (found := decoding.get(request)) is None or found[1] != end:
            heappop(ends)
            end, request = ends[0]
        most = end - self.clock
        if self.cache.free // len(decoding) * self._block >= most:
            return most, most
        return most, self._steps_that_fit(most)

    def advance(self, steps: int) -> None:
        """Take the blocks of `steps` decode steps, which must fit, and move the clock.

        Whoever was leaving is gone after the first of them, if there is more than one.
        """
        block, crossings, cache, clock = self._block, self._crossings, self.cache, self.clock
        slot = clock % block
        blocks = crossings[slot]
        if steps > 1:
            if self.leaving:
                cache.take(blocks)
                blocks = 0
                if cache.free < self._least_free:
                    self._least_free = cache.free
                self.release()
            end = slot + steps
            if end < block:
                blocks += sum(crossings[slot + 1 : end])
            else:
                cycles, rest = divmod(end, block)
                blocks += (cycles - 1) * len(self.decoding) + sum(crossings[slot + 1 :]) + sum(crossings[:rest])
        if blocks:
            cache.take(blocks)
            if cache.free < self._least_free:
                self._least_free = cache.free
        self.clock = clock + steps

    def sweep(self) -> None:
        """Forget requests that have left the batch."""
        self._stack = [r for r in self._stack if r in self.decoding or r in self.leaving or r == self.partial]

    def _steps_that_fit(self, most: int) -> int:
        """How many decode steps find blocks, up to `most`; the first must, before the leaving have left."""
        block, decodes = self._block, len(self.decoding)
        room = self.cache.free
        if self.leaving:
            room += sum(self.cache.freed_by(request, tokens) for request, tokens in self.leaving.items())
        cycles, rest = divmod(room, decodes)
        steps = cycles * block
        if steps >= most:
            return most
        for slot in range(self.clock, self.clock + block):
            rest -= self._crossings[slot % block]
            if rest < 0:
                break
            steps += 1
        return min(steps, most)

    def retire(self) -> dict[int, int]:
        """Take the decodes that made their last token out of the decodes; their tokens."""
        ended: dict[int, int] = {}
        ends, clock, decoding = self._ends, self.clock, self.decoding
        while ends and ends[0][0] <= clock:
            end, request = heappop(ends)
            found = decoding.get(request)
            if found is not None and found[1] == end:
                ended[request] = self._drop(request)
        return ended

    def apply(self, decision: Decision) -> tuple[list[int], dict[int, int], int]:
        """The decision runs. Prompts that are through make their first token, and go on as decodes, or end. Returns
        the requests whose first token it makes, those (with their tokens) whose last, and how many tokens leave."""
        outputs, clock, ends = decision.decodes, self.clock, self._ends
        free = self.cache.free
        if free < self._least_free:
            self._least_free = free
        ended: dict[int, int] = {}
        if not outputs and self.decoding:  # the decodes pause
            self._prefill_steps += 1
        else:
            self.clock = clock = clock + 1
            if ends and ends[0][0] <= clock:
                ended = self.retire()
        firsts: list[int] = []
        for request in decision.prompts:
            if request == self.partial:
                if self.partial_tokens < self.goal(request):
                    continue
                self.partial = NO_REQUEST
            outputs += 1
            goal, end = self._prompt[request], clock + self._output[request] - 1
            if self._made and (made := self._made.get(request, 0)):
                goal += made
                end -= made
            else:
                firsts.append(request)
            if end == clock:
                ended[request] = goal
                continue
            base = goal - clock
            self.decoding[request] = (base, end)
            self._base_sum += base
            self._crossings[-base % self._block] += 1
            heappush(ends, (end, request))
        return firsts, ended, outputs

    def release(self) -> None:
        """The last tokens of the leaving have come: free their places and blocks."""
        leave, leaving = self.cache.leave, self.leaving
        for request, tokens in leaving.items():
            leave(request, tokens, tokens)
        self.count -= len(leaving)
        self.leaving = {}

    def ordered(self) -> Iterator[int]:
        """The decodes in the order of the batch."""
        return (request for request in self._stack if request in self.decoding)

    def shares(self) -> Iterator[tuple[int, int]]:
        return ((request, 1) for request in self.ordered())

    def _drop(self, request: int) -> int:
        """Take a decode out, and count what it decoded: after n steps from a goal of g tokens it attended to g + 1,
        g + 2 … g + n. Its cached tokens."""
        base, _ = self.decoding.pop(request)
        self._base_sum -= base
        self._crossings[-base % self._block] -= 1
        cached, goal = base + self.clock, self._prompt[request]
        if self._made:
            goal += self._made.get(request, 0)
        steps = cached - goal
        self._decodes += steps
        self._decode_context += steps * goal + steps * (steps + 1) // 2
        return cached

    def preempt_last(self) -> int:
        """Take the last of the batch out, and put it in front of the queue unless it only awaits its last token. Its
        token in flight is not known yet, so no block that it fills has a hash."""
        while True:
            request = self._stack.pop()
            if request in self.decoding:
                goal, cached = self.goal(request), self._drop(request)
                self.cache.preempt(request, cached, cached - self.in_flight if cached > goal else cached)
                self._made[request] = cached - self._prompt[request] + 1
                self.resumed.append(request)
            elif request == self.partial:
                self.cache.preempt(request, self.partial_tokens, self.partial_tokens)
                self.partial = NO_REQUEST
                self.resumed.append(request)
            elif request in self.leaving:
                tokens = self.leaving.pop(request)
                self.cache.leave(request, tokens, tokens - self.in_flight if tokens > self.goal(request) else tokens)
            else:
                continue
            self.count -= 1
            self.preemptions += 1
            return request
