"""The requests that hold a place and cache blocks in the batch, and those that were preempted."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from heapq import heappop, heappush

from gnomon.sim.serving.run import StepTotals
from gnomon.spec.serving import ServingLimits

NO_REQUEST = -1


class BatchState:
    """Places and blocks. Knows tokens, not time.

    All decodes move together, so the context of one is `base + clock`, where `clock` counts the steps
    scheduled so far: a step, or a hundred, touches no request. A decode takes a new block when its
    context is a multiple of the block; `_crossings` counts the decodes that do so at each residue of
    the clock.
    """

    __slots__ = (
        "_base_sum", "_block", "_crossings", "_decode_context", "_decodes", "_ends", "_least_free", "_made",
        "_output", "_places", "_prefill_context", "_prefill_pairs", "_prefill_tokens", "_prefills", "_prompt",
        "_stack", "_stack_limit", "_total", "clock", "count", "decoding", "free", "leaving", "partial",
        "partial_tokens", "preemptions", "resumed",
    )  # fmt: skip

    def __init__(self, prompt: list[int], output: list[int], limits: ServingLimits) -> None:
        self._prompt, self._output = prompt, output
        self._block, self._places = limits.block_tokens, limits.max_sequences
        self._total = self.free = limits.kv_blocks
        self._crossings = [0] * limits.block_tokens
        self._base_sum = 0
        self._ends: list[tuple[int, int]] = []
        self._made: dict[int, int] = {}
        self._stack: list[int] = []
        """The batch in its order, among requests that have left it since; swept when it grows."""
        self._stack_limit = 2 * limits.max_sequences + 64
        self._least_free = limits.kv_blocks
        self.clock = self.count = self.preemptions = 0
        self._decodes = self._decode_context = 0
        self._prefills = self._prefill_tokens = self._prefill_pairs = self._prefill_context = 0
        self.decoding: dict[int, tuple[int, int]] = {}
        """Base and the clock after the last step, of each decode."""
        self.partial, self.partial_tokens = NO_REQUEST, 0
        """The request whose prompt is not through yet (at most one, the last of the batch), and its cached tokens."""
        self.leaving: dict[int, int] = {}
        """Blocks of the requests that only wait for their last token."""
        self.resumed: list[int] = []
        """Preempted requests, the next to come back last; they go before all new ones."""

    def forked(self, prompt: list[int], output: list[int]) -> BatchState:
        """A copy of the batch, to go on by itself with requests of which the first are those known so far."""
        other = copy(self)
        other._prompt, other._output = prompt, output
        other._crossings, other._ends, other._stack = self._crossings[:], self._ends[:], self._stack[:]
        other._made, other.decoding = self._made.copy(), self.decoding.copy()
        other.leaving, other.resumed = self.leaving.copy(), self.resumed[:]
        return other

    def add(self, prompt: int, output: int) -> int:
        """One more request that may come in; its index."""
        self._prompt.append(prompt)
        self._output.append(output)
        return len(self._prompt) - 1

    @property
    def peak_blocks(self) -> int:
        """The most blocks that were ever taken."""
        return self._total - self._least_free

    def totals(self) -> StepTotals:
        """Sums over all steps, once all requests have ended."""
        return StepTotals(
            steps=self.clock,
            decodes=self._decodes,
            decode_context=self._decode_context,
            prefills=self._prefills,
            prefill_tokens=self._prefill_tokens,
            prefill_pairs=self._prefill_pairs,
            prefill_context=self._prefill_context,
        )

    @property
    def context(self) -> int:
        """Cached tokens of all decodes together."""
        return self._base_sum + len(self.decoding) * self.clock

    def goal(self, request: int) -> int:
        """Tokens to compute before the request makes its next one: its prompt, and what it made before."""
        return self._prompt[request] + (self._made.get(request, 0) if self._made else 0)

    def only_decodes(self, waiting: int) -> bool:
        """Whether the next step has the decodes alone: they find blocks, and the request that waits finds no place, or
        no blocks beside them for all it has to compute."""
        room = self.free - self._crossings[self.clock % self._block]
        if room < 0:
            return False
        if waiting == NO_REQUEST or self.count >= self._places:
            return True
        return -(-self.goal(waiting) // self._block) > room

    def claim(self, step_tokens: int) -> tuple[int, list[int]]:
        """Blocks for the decodes and the partial prompt. Returns how much of the prompt runs, and the preempted
        requests."""
        if len(self._stack) > self._stack_limit:
            self._stack = [r for r in self._stack if r in self.decoding or r in self.leaving or r == self.partial]
        slot = self.clock % self._block
        need, piece, extra = self._crossings[slot], 0, 0
        had = self.partial_tokens
        if self.partial != NO_REQUEST:
            piece = min(self.goal(self.partial) - had, step_tokens - len(self.decoding))
            extra = -(-(had + piece) // self._block) + (-had // self._block)
        out: list[int] = []
        while need + extra > self.free:
            out.append(self._preempt_last())
            need = self._crossings[slot]
            if self.partial == NO_REQUEST:
                piece = extra = 0
        self.free -= need + extra
        if piece:
            self._count_chunk(piece, had)
        return piece, out

    def enter(self, request: int, budget: int) -> int:
        """Give a waiting request a place, and blocks for its first tokens, as many as the budget has. Returns how
        many, or 0 where there are no blocks for all it has to compute."""
        goal, block = self._prompt[request], self._block
        if self._made:
            goal += self._made.get(request, 0)
        blocks = -(-goal // block)
        if blocks > self.free:
            return 0
        if goal > budget:
            self.partial, self.partial_tokens = request, budget
            goal, blocks = budget, -(-budget // block)
        self.free -= blocks
        self.count += 1
        self._stack.append(request)
        self._count_chunk(goal, 0)
        return goal

    def _count_chunk(self, new: int, cached: int) -> None:
        self._prefills += 1
        self._prefill_tokens += new
        self._prefill_pairs += new * cached + new * (new + 1) // 2
        self._prefill_context += new + cached

    def begin(self, request: int) -> tuple[bool, int]:
        """The prompt is through, and the step that ran it is on the clock: decode from now on.

        Returns whether that step made its first token, and with the request's blocks if it also made its last, else 0.
        """
        made, clock = self._made.get(request, 0) if self._made else 0, self.clock
        goal, more = self._prompt[request] + made, self._output[request] - made - 1
        if more == 0:
            return not made, -(-goal // self._block)
        base, end = goal - clock, clock + more
        self.decoding[request] = (base, end)
        self._base_sum += base
        self._crossings[-base % self._block] += 1
        heappush(self._ends, (end, request))
        return not made, 0

    def to_next_end(self) -> tuple[int, int]:
        """Decode steps until one of them finishes a request, and as many of them as find blocks. There must be one."""
        ends, decoding = self._ends, self.decoding
        end, request = ends[0]
        while (found := decoding.get(request)) is None or found[1] != end:
            heappop(ends)
            end, request = ends[0]
        most = end - self.clock
        if self.free // len(decoding) * self._block >= most:
            return most, most
        return most, self._steps_that_fit(most)

    def advance(self, steps: int) -> None:
        """Take the blocks of `steps` decode steps, which must fit, and move the clock.

        Whoever was leaving is gone after the first of them, if there is more than one.
        """
        block, crossings = self._block, self._crossings
        slot = self.clock % block
        if steps == 1:
            free = self.free - crossings[slot]
        else:
            if self.leaving:
                if self.free - crossings[slot] < self._least_free:
                    self._least_free = self.free - crossings[slot]
                self.release()
            end = slot + steps
            if end < block:
                free = self.free - sum(crossings[slot:end])
            else:
                cycles, rest = divmod(end, block)
                free = self.free - (cycles - 1) * len(self.decoding) - sum(crossings[slot:]) - sum(crossings[:rest])
        self.free = free
        if free < self._least_free:
            self._least_free = free
        self.clock += steps

    def tick(self) -> dict[int, int]:
        """Move the clock over a step whose blocks were claimed; blocks of those that made their last token in it."""
        if self.free < self._least_free:
            self._least_free = self.free
        self.clock += 1
        return self.retire() if self._ends and self._ends[0][0] <= self.clock else {}

    def _steps_that_fit(self, most: int) -> int:
        """How many decode steps find blocks, up to `most`; the first must, before the leaving have left."""
        block, decodes = self._block, len(self.decoding)
        room = self.free + sum(self.leaving.values()) if self.leaving else self.free
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
        """Take the decodes that made their last token out of the decodes; their blocks."""
        ended: dict[int, int] = {}
        ends, clock, decoding, block = self._ends, self.clock, self.decoding, self._block
        while ends and ends[0][0] <= clock:
            end, request = heappop(ends)
            found = decoding.get(request)
            if found is not None and found[1] == end:
                ended[request] = -(-self._drop(request) // block)
        return ended

    def release(self) -> None:
        """The last tokens of the leaving have come: free their places and blocks."""
        leaving = self.leaving
        self.free += sum(leaving.values())
        self.count -= len(leaving)
        self.leaving = {}

    def ordered(self) -> Iterator[int]:
        """The decodes in the order of the batch."""
        return (request for request in self._stack if request in self.decoding)

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

    def _preempt_last(self) -> int:
        """Take the last of the batch out, and put it in front of the queue unless it only awaits its last token."""
        while True:
            request = self._stack.pop()
            if request in self.decoding:
                cached = self._drop(request)
                self.free += -(-cached // self._block)
                self._made[request] = cached - self._prompt[request] + 1
                self.resumed.append(request)
            elif request == self.partial:
                self.free += -(-self.partial_tokens // self._block)
                self.partial = NO_REQUEST
                self.resumed.append(request)
            elif request in self.leaving:
                self.free += self.leaving.pop(request)
            else:
                continue
            self.count -= 1
            self.preemptions += 1
            return request
