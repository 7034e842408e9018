"""Chunked mixed batches, first come first served: the scheduler of vLLM V1 (checked against 0.24.0).

Each call gives every decode one token, then the prompt it has begun, then waiting prompts, until the step's tokens, the
sequences or the cache blocks run out. A request that cannot get a block takes the last of the batch out; that one
starts again from its prompt and what it had made, before all others that wait.
"""

from __future__ import annotations

from gnomon.sim.serving.base import CALL, NO_REQUEST, ONCE, UNTIL_ARRIVAL, UNTIL_END, Decision, Queue
from gnomon.sim.serving.batch import BatchState


class ChunkedPolicy(BatchState):
    """See `gnomon.sim.serving.base.Policy`."""

    __slots__ = ()

    def horizon(self, queue: Queue, now: float) -> int:
        """The decodes alone go on where they find blocks, no prompt is begun, and the request that waits finds no
        place, or no blocks beside them for all it has to compute: until one of them leaves."""
        if self.partial != NO_REQUEST or not self.decoding:
            return CALL
        room = self.cache.free - self._crossings[self.clock % self._block]
        if room < 0:
            return CALL
        places = self.count < self._places
        if self.resumed:
            waiting = self.resumed[-1]
        elif queue.visible_s[queue.head] <= now:
            waiting = queue.head
        else:
            return UNTIL_ARRIVAL if places or self.leaving else UNTIL_END
        if places and self.cache.need(waiting, self.goal(waiting)) <= room:
            return CALL
        return ONCE if self.leaving else UNTIL_END

    def decide(self, queue: Queue, now: float) -> Decision:
        chunks: list[tuple[int, int]] = []
        prompts: list[int] = []
        preempted: list[int] = []
        if len(self._stack) > self._stack_limit:
            self.sweep()
        need = self._crossings[self.clock % self._block]
        if self.partial == NO_REQUEST and need <= self.cache.free:
            if need:
                self.cache.take(need)
            decodes = len(self.decoding)
            left = self._step_tokens - decodes
        else:
            piece = self._claim(preempted)
            decodes = len(self.decoding)
            if piece:
                chunks.append((piece, self.partial_tokens))
                prompts.append(self.partial)
                self.partial_tokens += piece
            left = self._step_tokens - decodes - piece
        context = self._base_sum + decodes * self.clock
        if not preempted:
            left = self._admit(queue, now, left, chunks, prompts)
        return Decision(decodes, context, chunks, prompts, preempted, self._step_tokens - left)

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
        places, resumed, visible = self._places, self.resumed, queue.visible_s
        while budget > 0 and self.count < places:
            if resumed:
                request = resumed[-1]
            elif visible[queue.head] <= now:
                request = queue.head
            else:
                break
            new, found = self.enter(request, budget)
            if not new:
                break
            if resumed:
                resumed.pop()
            else:
                queue.scheduled_s[request] = now
                queue.head = request + 1
            budget -= new
            chunks.append((new, found))
            prompts.append(request)
        return budget
