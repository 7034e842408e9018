"""Chunked mixed batches, first come first served: the scheduler of vLLM V1 (checked against 0.24.0).

Each call gives every decode one token, then the prompt it has begun, then waiting prompts, until the step's tokens, the
sequences or the cache blocks run out. A request that cannot get a block takes the last of the batch out; that one
starts again from its prompt and what it had made, before all others that wait.
"""

from __future__ import annotations

from gnomon.sim.serving.base import CALL, NO_REQUEST, ONCE, UNTIL_ARRIVAL, UNTIL_END, Decision, Queue
from gnomon.sim.serving.batch import BatchState

new_decision = tuple.__new__
"""Makes a tuple of a given class without the call in between that a named tuple's own constructor is."""


class ChunkedPolicy(BatchState):
    """See `gnomon.sim.serving.base.Policy`."""

    __slots__ = ()

    def horizon(self, queue: Queue, now: float) -> int:
        """The decodes alone go on where they find blocks, no prompt is begun, and the request that waits finds no
        place, or no blocks beside them for all it has to compute: until one of them leaves."""
        if self.partial >= 0 or not self.decoding:
            return CALL
        cache = self.cache
        room = cache.free - self._crossings[self.clock % self._block]
        if room < 0:
            return CALL
        if self.resumed:
            waiting = self.resumed[-1]
        else:
            waiting = queue.head
            if queue.visible_s[waiting] > now:
                return UNTIL_ARRIVAL if self.count < self._places or self.leaving else UNTIL_END
        if self.count < self._places and cache.need(waiting, self.goal(waiting)) <= room:
            return CALL
        return ONCE if self.leaving else UNTIL_END

    def decide(self, queue: Queue, now: float) -> Decision:
        chunks: list[tuple[int, int]] = []
        prompts: list[int] = []
        preempted: list[int] = []
        if len(self._stack) > self._stack_limit:
            self.sweep()
        left, clock = self._step_tokens, self.clock
        need = self._crossings[clock % self._block]
        if self.partial < 0 and need <= self.cache.free:
            if need:
                self.cache.take(need)
        elif piece := self._claim(preempted):
            chunks.append((piece, self.partial_tokens))
            prompts.append(self.partial)
            self.partial_tokens += piece
            left -= piece
        decodes = len(self.decoding)
        left -= decodes
        context = self._base_sum + decodes * clock
        if not preempted:
            left = self._admit(queue, now, left, chunks, prompts)
        return new_decision(Decision, (decodes, context, chunks, prompts, preempted, self._step_tokens - left, 0))

    def _claim(self, preempted: list[int]) -> int:
        """Blocks for the decodes and the partial prompt, one request after the other; who is `preempted` for them.
        Returns how much of the prompt runs."""
        slot, cache = self.clock % self._block, self.cache
        need, piece, extra, taken = self._crossings[slot], 0, 0, 0
        had = self.partial_tokens
        if self.partial != NO_REQUEST:
            piece = min(self.goal(self.partial) - had, self._step_tokens - len(self.decoding))
            extra = -(-(had + piece) // self._block) + (-had // self._block)
        while need - taken + extra > cache.free:
            served = min(need - taken, cache.free)  # those before the one that finds no block have theirs
            cache.take(served)
            taken += served
            preempted.append(self.preempt_last())
            need = self._crossings[slot]
            if self.partial == NO_REQUEST:
                piece = extra = 0
        if need - taken + extra:
            cache.take(need - taken + extra)
        if piece:
            cache.extend(self.partial, had + piece)
            self._count_chunk(piece, had)
        return piece

    def _admit(self, queue: Queue, now: float, budget: int, chunks: list[tuple[int, int]], prompts: list[int]) -> int:
        """Let waiting requests in, in order, while there are tokens, places and blocks for the whole prompt; the tokens
        that are left."""
        places, resumed = self._places, self.resumed
        while budget > 0 and self.count < places:
            if resumed:
                request = resumed[-1]
            else:
                request = queue.head
                if queue.visible_s[request] > now:
                    break
            entered = self.enter(request, budget)
            if not entered[0]:
                break
            if resumed:
                resumed.pop()
            else:
                queue.scheduled_s[request] = now
                queue.head = request + 1
            budget -= entered[0]
            chunks.append(entered)
            prompts.append(request)
        return budget
