"""TensorRT-LLM's schedulers without any cleverness, rule by rule, inside the plain loop of `tests/sim/plain.py`.

The overlap scheduler is that loop: a step is scheduled before the outputs of the one in flight are taken
(`PyExecutor._executor_loop_overlap`). `running` has every active request in the order it was fetched, started or not.
"""

from __future__ import annotations

from tests.sim.plain import Block, Plain, Req, Step

from gnomon.cost.step import StepCost
from gnomon.engines.trtllm.reuse import ReusedBlocks
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class TrtllmPlain(Plain):
    def __init__(
        self, requests: Requests, cost: StepCost, limits: ServingLimits, *, no_evict: bool = True, chunked: bool = False
    ) -> None:
        super().__init__(requests, cost, limits)
        self.no_evict, self.chunked = no_evict, chunked
        self.pool.shares = limits.cache is ReusedBlocks
        self.next_new: dict[int, tuple[int, ...] | None] = {}
        """By request: its first block that was not in the cache when it started."""

    def schedule(self) -> Step:
        self.unreported = False
        step = Step([], [], self.now)
        # PyExecutor._fetch_new_requests: active requests are no more than max_num_active_requests (max_batch_size).
        while self.waiting and len(self.running) < self.limits.max_sequences:
            self.running.append(self.waiting.popleft())
        fitting = self.guaranteed_no_evict() if self.no_evict else self.max_utilization(step)
        self.micro_batch(step, fitting)
        self.peak_blocks = max(self.peak_blocks, self.limits.kv_blocks - len(self.pool.queue))
        return step

    # capacityScheduler.cpp

    def guaranteed_no_evict(self) -> list[Req]:
        """GuaranteedNoEvictScheduler::impl: what is in progress is included and its blocks to completion are set
        aside; then requests in context, in order, while blocks are left."""
        available = len(self.pool.queue)
        scheduled: list[Req] = []
        for req in self.running:
            if self.generates(req):
                scheduled.append(req)
                available -= self.to_completion(req)
        contributed = self.chunked_contexts_already_executing()
        for req in sorted(self.running, key=lambda one: one.waiting):
            if self.generates(req) or self.beneficial_to_skip(req, contributed):
                continue
            if len(scheduled) >= self.limits.max_sequences or self.to_completion(req) > available:
                break
            available -= self.to_completion(req)
            scheduled.append(req)
        return scheduled

    def max_utilization(self, step: Step) -> list[Req]:
        """MaxUtilizationScheduler::operator(): requests in order; where one does not fit, the last started one from
        the end of the list is paused and it is tried again, and nothing behind the paused one is looked at."""
        scheduled: list[Req] = []
        available = len(self.pool.queue)
        contributed = self.chunked_contexts_already_executing()
        active = sorted(self.running, key=lambda req: req.waiting)  # what has started first, see `scheduler.py`
        at, end = 0, len(active)
        while at < end:
            req = active[at]
            if not self.generates(req) and self.beneficial_to_skip(req, contributed):
                at += 1
                continue
            need = self.one_step(req)
            if len(scheduled) < self.limits.max_sequences and need <= available:
                available -= need
                scheduled.append(req)
                at += 1
                continue
            started = [i for i in range(at, end) if not active[i].waiting]
            if not started:
                break
            end = started[-1]
            free = len(self.pool.queue)
            self.pause(active[end], step)
            available += len(self.pool.queue) - free
        return scheduled

    def pause(self, req: Req, step: Step) -> None:
        """LlmRequest::pause and PyExecutor._pause_requests: its blocks go back, and it is in context again with what
        it made; it keeps its place in the list."""
        # removeSequence stores what is known for reuse: not the token that is in flight.
        self.pool.name(req, req.computed if req.computed <= req.goal else req.computed - req.in_flight)
        self.pool.give_back(req)
        req.computed, req.waiting = 0, True
        self.preemptions += 1
        step.preempted.append(req.index)

    def generates(self, req: Req) -> bool:
        """LlmRequest::isGenerationInProgressState, its last token in flight or not."""
        return not req.waiting and req.computed >= req.goal

    def to_completion(self, req: Req) -> int:
        """KVCacheManager::getRemainingBlocksToCompletion: of prompt and all new tokens, less those it has."""
        return min(self.cdiv(req.prompt + req.output), self.limits.kv_blocks) - len(req.blocks)

    def one_step(self, req: Req) -> int:
        """KVCacheManager::getNeededBlocksOneStep: a prompt's blocks before its first chunk, none for the further ones,
        one where a decode's next token begins a block."""
        if req.waiting:
            return self.cdiv(req.prompt + req.made + req.in_flight)
        if not self.generates(req) or req.made + req.in_flight >= req.output:
            return 0
        return self.cdiv(req.computed + 1) - len(req.blocks)

    def chunked_contexts_already_executing(self) -> set[tuple[int, ...]]:
        begun = [req for req in self.running if not req.waiting and not self.generates(req)]
        return {place for req in begun if (place := self.next_new[req.index]) is not None}

    def beneficial_to_skip(self, req: Req, contributed: set[tuple[int, ...]]) -> bool:
        if not req.waiting:
            return False
        place = self.find_new_context_block(req)
        if place is None:
            return False
        if place in contributed:
            return True
        contributed.add(place)
        return False

    def find_new_context_block(self, req: Req) -> tuple[int, ...] | None:
        req.goal = req.prompt + req.made + req.in_flight
        found = len(self.pool.found(req))
        if not self.pool.shares or (found + 1) * self.limits.block_tokens >= req.goal:
            return None
        return self.pool.hash_of(req.index, found)

    # microBatchScheduler.cpp

    def micro_batch(self, step: Step, fitting: list[Req]) -> None:
        budget = self.limits.max_step_tokens
        contexts: list[Req] = []
        for req in fitting:
            if not self.generates(req):
                contexts.append(req)
            elif req.made + req.in_flight < req.output:  # its last token is not in flight (GENERATION_TO_COMPLETE)
                assert self.allocate(req, req.computed + 1)
                self.put(step, req, 1)
                budget -= 1
        for req in contexts:
            goal = req.prompt + req.made + req.in_flight if req.waiting else req.goal
            remaining = goal if req.waiting else goal - req.computed
            chunk = min(remaining, budget)
            if chunk < remaining:  # setCtxRequestsChunkSize<kFIRST_COME_FIRST_SERVED>
                whole = goal > self.limits.max_step_tokens or self.chunked or not req.waiting
                chunk = chunk // self.limits.block_tokens * self.limits.block_tokens if whole else 0
                if not whole:
                    break
            budget -= chunk
            if chunk:
                self.run_chunk(step, req, chunk)

    def run_chunk(self, step: Step, req: Req, chunk: int) -> None:
        if req.waiting:
            self.next_new[req.index] = self.find_new_context_block(req)
            found: list[Block] = self.pool.found(req)
            self.pool.hold(found)
            req.blocks, req.hashed = found, len(found)
            req.computed = len(found) * self.limits.block_tokens
            if not req.made + req.in_flight:
                req.cached = req.computed
            assert self.allocate(req, req.goal)  # KVCacheManager::addSequence: all blocks of the prompt
            req.waiting = False
            if req.computed + chunk < req.goal:  # LlmRequest::setPrepopulatedPromptLen ends at a whole block
                chunk = (req.computed + chunk) // self.limits.block_tokens * self.limits.block_tokens - req.computed
            else:
                chunk = req.goal - req.computed
        self.put(step, req, chunk)

    def allocate(self, req: Req, tokens: int) -> bool:
        new = self.cdiv(tokens) - len(req.blocks)
        if new > len(self.pool.queue):
            return False
        req.blocks = req.blocks + self.pool.new(new)
        return True

    def take_outputs(self, step: Step) -> None:
        self.now = max(self.now, step.end_s)
        if step.work:
            outputs = sum(makes for *_, makes in step.work)
            left = self.now + self.limits.egress_s + self.limits.egress_sequence_s * outputs
            self.left_s = max(self.left_s, left)
        for req, _, _, makes in step.work:
            if not makes:
                continue
            req.in_flight -= 1
            req.made += 1
            if not req.waiting:  # storeContextBlocks, and what was generated since
                self.pool.name(req, req.computed - req.in_flight)
            if req.made == 1:
                self.first_s[req.index] = self.left_s
            if req.made == req.output:
                self.finish_s[req.index] = self.left_s
                self.unreported = True
                self.pool.give_back(req)
                self.running.remove(req)
