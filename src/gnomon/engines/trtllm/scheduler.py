"""In-flight batching: the capacity and micro-batch schedulers of TensorRT-LLM 1.2, first come first served.

Sources: `cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp`, `microBatchScheduler.cpp` and `kvCacheManager.cpp`,
which the PyTorch backend calls (`tensorrt_llm/_torch/pyexecutor/scheduler.py`). Each call:

1. fetches requests that have arrived while fewer than `max_batch_size` are active, in their order;
2. gives every decode one token. Under GUARANTEED_NO_EVICT there are blocks for it; under MAX_UTILIZATION the last
   started request is paused until there are, loses its blocks and starts again from its prompt and what it had made;
3. lets waiting requests in, in order, where blocks are left: for prompt and output under GUARANTEED_NO_EVICT, for the
   prompt under MAX_UTILIZATION. The first that finds none keeps those behind it out, and so does a pause. With block
   reuse, a request whose next block is just being computed by another waits, and lets those behind it pass;
4. gives prompts the tokens that decodes leave of `max_num_tokens`. Without chunked prefill a prompt runs in one step,
   and one that does not fit keeps those behind it out. With it a prompt that does not fit is cut at a whole number of
   blocks, and short ones behind it may use what that leaves.

Blocks of a prompt are taken all at once when it starts. What is in the batch goes before what waits, where TensorRT-LLM
goes by age alone: the two differ only once a younger request has passed an older one. A paused request that has grown
beyond `max_num_tokens` comes back in chunks whether they are enabled or not; TensorRT-LLM cuts its prompt off there.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import Self

from gnomon.engines.trtllm.reuse import Place, ReusedBlocks
from gnomon.errors import InputError
from gnomon.sim.serving.base import CALL, NO_REQUEST, ONCE, UNTIL_ARRIVAL, UNTIL_END, Decision, Queue
from gnomon.sim.serving.batch import BatchState
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

GUARANTEED_NO_EVICT, MAX_UTILIZATION = "GUARANTEED_NO_EVICT", "MAX_UTILIZATION"


@dataclass(frozen=True, slots=True)
class InflightBatching:
    """What makes the scheduler of one replica, by its settings."""

    no_evict: bool = True
    chunked: bool = False

    def __call__(self, requests: Requests, limits: ServingLimits, cache: CacheModel) -> InflightPolicy:
        return InflightPolicy(requests, limits, cache, self)


class InflightPolicy(BatchState):
    """See `gnomon.sim.serving.base.Policy`. `resumed` has all active requests that are not in the batch, paused or not
    started yet, the first fetched last; requests are fetched in the order of their indices."""

    __slots__ = ("_chunked", "_fetched", "_no_evict", "_partial_place", "_reused", "_spare", "_unstored")

    def __init__(
        self, requests: Requests, limits: ServingLimits, cache: CacheModel, settings: InflightBatching
    ) -> None:
        super().__init__(requests, limits, cache)
        self._no_evict, self._chunked = settings.no_evict, settings.chunked
        self._spare = limits.kv_blocks
        """Blocks that are free once all in the batch have run to completion: decodes do not change it."""
        self._fetched: set[int] = set()
        """Active requests that have never run."""
        self._reused = cache if isinstance(cache, ReusedBlocks) else None
        self._unstored: list[tuple[int, int]] = []
        """Prompts of the last step and their tokens: found by others once its outputs are taken."""
        self._partial_place: Place | None = None
        self._check_prompt(max(self._prompt, default=0))

    def _check_prompt(self, prompt: int) -> None:
        if not self._chunked and prompt > self._step_tokens:
            raise InputError(
                f"a prompt of {prompt:,} tokens is more than the {self._step_tokens:,} of a step, which TensorRT-LLM "
                "refuses without chunked prefill",
                where="setting max_num_tokens",
                hint=f"Use --set enable_chunked_prefill=true, or --set max_num_tokens={prompt}.",
            )

    def add(
        self, prompt: int, output: int, node: int = -1, loaded: bool = False, adapter: int = -1, priority: int = 0
    ) -> int:
        self._check_prompt(prompt)
        return super().add(prompt, output, node, loaded, adapter, priority)

    def forked(self, requests: Requests | None) -> Self:
        other = super().forked(requests)
        other._fetched, other._unstored = self._fetched.copy(), self._unstored[:]
        other._reused = other.cache if isinstance(other.cache, ReusedBlocks) else None
        other._check_prompt(max(other._prompt, default=0))
        return other

    def horizon(self, queue: Queue, now: float) -> int:
        """The decodes alone go on where no prompt is begun and the first request that waits finds no place, no blocks
        or, in one piece, no tokens: until one of them leaves."""
        if self.partial != NO_REQUEST or not self.decoding:
            return CALL
        room = self._spare if self._no_evict else self.cache.free - self._crossings[self.clock % self._block]
        if room < 0:
            return CALL
        if self.resumed:
            waiting = self.resumed[-1]
        elif queue.visible_s[queue.head] <= now:
            waiting = queue.head
        else:
            return UNTIL_ARRIVAL if self.leaving or self.count < self._places else UNTIL_END
        if self.count < self._places and self._need(waiting) <= room:
            goal, left = self._to_compute(waiting), self._step_tokens - len(self.decoding)
            if goal <= left or self._in_chunks(goal):
                return CALL
        return ONCE if self.leaving else UNTIL_END

    def decide(self, queue: Queue, now: float) -> Decision:
        chunks: list[tuple[int, int]] = []
        prompts: list[int] = []
        preempted: list[int] = []
        if len(self._stack) > self._stack_limit:
            self.sweep()
        if not self.in_flight:
            self._store()
        self._fetch(queue, now)
        self._claim(preempted)
        decodes = len(self.decoding)
        context = self._base_sum + decodes * self.clock
        left = self._go_on(self._step_tokens - decodes, chunks, prompts)
        if not preempted:
            self._admit(queue, now, left, chunks, prompts)
        self._store()
        return Decision(decodes, context, chunks, prompts, preempted, decodes + sum(new for new, _ in chunks))

    def apply(self, decision: Decision) -> tuple[list[int], dict[int, int], int]:
        found = super().apply(decision)
        if self._reused is not None:
            self._unstored = [(one, self.goal(one)) for one in decision.prompts if one != self.partial]
        return found

    def advance(self, steps: int) -> None:
        self._store()
        super().advance(steps)

    def release(self) -> None:
        if self._no_evict:
            before = self.cache.free
            self._spare += sum(self._whole(one) - -(-held // self._block) for one, held in self.leaving.items())
            super().release()
            self._spare += self.cache.free - before
        else:
            super().release()

    def preempt_last(self) -> int:
        """Pause the last fetched of the batch. A prompt that is not through gives back blocks of all its tokens; a
        request that only awaits its last token is gone."""
        request = max(self.decoding.keys() | self.leaving.keys() | {self.partial})
        goal = self.goal(request)
        if request in self.decoding:
            cached = self._drop(request)
            self.cache.preempt(request, cached, cached - self.in_flight if cached > goal else cached)
            self._made[request] = cached - self._prompt[request] + 1
        elif request == self.partial:
            self.cache.preempt(request, goal, self.partial_tokens)
            self.partial = NO_REQUEST
        else:
            tokens = self.leaving.pop(request)
            self.cache.leave(request, tokens, tokens - self.in_flight if tokens > goal else tokens)
            return self._gone(request)
        insort(self.resumed, request, key=lambda one: -one)
        return self._gone(request)

    def _gone(self, request: int) -> int:
        """Out of the batch."""
        self._stack.remove(request)
        self._unstored = [(one, tokens) for one, tokens in self._unstored if one != request]
        self.count -= 1
        self.preemptions += 1
        return request

    def _store(self) -> None:
        """Others find the prompts whose step's outputs were taken."""
        if self._reused is not None:
            for request, tokens in self._unstored:
                self._reused.extend(request, tokens)
            self._unstored = []

    def _fetch(self, queue: Queue, now: float) -> None:
        visible, head = queue.visible_s, queue.head
        room = self._places - self.count - len(self.resumed)
        while room > 0 and visible[head] <= now:
            self.resumed.insert(0, head)
            self._fetched.add(head)
            head += 1
            room -= 1
        queue.head = head

    def _claim(self, preempted: list[int]) -> None:
        """Blocks for the decodes; who is `preempted` for them."""
        slot, cache, taken = self.clock % self._block, self.cache, 0
        while (need := self._crossings[slot] - taken) > cache.free:
            served = min(need, cache.free)  # those before the one that finds no block have theirs
            cache.take(served)
            taken += served
            preempted.append(self.preempt_last())
        if need:
            cache.take(need)

    def _go_on(self, left: int, chunks: list[tuple[int, int]], prompts: list[int]) -> int:
        """The prompt that is begun; the tokens that are left."""
        if self.partial == NO_REQUEST:
            return left
        had = self.partial_tokens
        piece = self._piece(self.goal(self.partial) - had, left, chunked=True)
        if piece:
            self._count_chunk(piece, had)
            self.partial_tokens += piece
            chunks.append((piece, had))
            prompts.append(self.partial)
        return left - piece

    def _admit(self, queue: Queue, now: float, left: int, chunks: list[tuple[int, int]], prompts: list[int]) -> None:
        """Let waiting requests in while there are tokens, places and blocks."""
        waiting, count = self.resumed, self.count
        room = self._spare if self._no_evict else self.cache.free
        places = {self._partial_place} if self.partial != NO_REQUEST else set()
        at = len(waiting)
        while at and left > 0 and count < self._places:
            at -= 1
            request = waiting[at]
            goal = self._to_compute(request)
            if self._computed_by_another(request, places):
                continue
            need = self._need(request)
            if need > room:
                break
            count, room = count + 1, room - need
            piece = self._piece(goal, left, self._in_chunks(goal))
            left -= piece
            if piece:
                del waiting[at]
                if request in self._fetched:
                    self._fetched.discard(request)
                    queue.scheduled_s[request] = now
                chunks.append(self._start(request, piece))
                prompts.append(request)
            elif not self._in_chunks(goal):
                break

    def _computed_by_another(self, request: int, places: set[Place | None]) -> bool:
        """Whether the first block that it lacks is computed in this call or by a prompt that is begun; if not, it is
        from now on."""
        if self._reused is None:
            return False
        place = self._reused.first_new(request, self.goal(request))
        if place is not None and place in places:
            return True
        places.add(place)
        return False

    def _start(self, request: int, piece: int) -> tuple[int, int]:
        """The first chunk of a prompt: blocks for all of it, and as many tokens behind those that are found. Returns
        how many are computed and how many were found."""
        goal, block, before = self.goal(request), self._block, self.cache.free
        place = self._reused.first_new(request, goal) if self._reused is not None else None
        found = self.cache.enter(request, goal, goal)
        loaded = request in self.loaded
        if loaded:
            self.loaded.discard(request)
            found = goal - 1
        end = goal if found + piece >= goal else (found + piece) // block * block
        if end < goal:
            self.partial, self.partial_tokens, self._partial_place = request, end, place
        self.count += 1
        self._stack.append(request)
        self._spare -= before - self.cache.free + self._whole(request) - -(-goal // block)
        if request not in self._made and not loaded:
            self.cached[request] = found
        self._count_chunk(end - found, found)
        return end - found, found

    def _to_compute(self, request: int) -> int:
        """Tokens of a request that waits: of one that came with its KV cache, the last."""
        return 1 if request in self.loaded else self.goal(request)

    def _in_chunks(self, goal: int) -> bool:
        return self._chunked or goal > self._step_tokens

    def _piece(self, tokens: int, left: int, chunked: bool) -> int:
        """Of a prompt with so many tokens to compute: those of this step."""
        if tokens <= left:
            return tokens
        return left // self._block * self._block if chunked else 0

    def _need(self, request: int) -> int:
        """Blocks that must be left for a request to start."""
        return self._whole(request) if self._no_evict else -(-self.goal(request) // self._block)

    def _whole(self, request: int) -> int:
        """Blocks of prompt and output."""
        return min(-(-(self._prompt[request] + self._output[request]) // self._block), self._total)
