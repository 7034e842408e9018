"""vLLM V1's scheduler request by request, with all that it does at once (checked against 0.24.0): drafts, KV
offloading, LoRA adapters and priorities, each by itself or together. `ChunkedPolicy` and `OrderedPolicy` decide the
same without drafts and offloading, for many steps at a time.

With drafts every decode runs the token it made last and `drafts` more, and makes as many tokens as were accepted, and
one. With lookahead a step is scheduled before the one in flight has said what it accepted: as if all of it were, so
that a request whose last token is in flight may run once more for nothing.

With offloading, a request whose blocks the host has is given blocks of the GPU and is passed over until the scheduler
has heard that they were copied; one whose blocks are on their way in or out is asked for again in the next call.
"""

from __future__ import annotations

from math import inf

from gnomon.errors import InputError
from gnomon.sim.serving.base import NO_REQUEST, Decision, Queue
from gnomon.sim.serving.caches.base import NO_ROOM
from gnomon.sim.serving.caches.host import LATER
from gnomon.sim.serving.caches.tiered import TieredBlocks
from gnomon.sim.serving.policies.copies import CopyReport
from gnomon.sim.serving.policies.stepped_batch import Running, SteppedBatch


class SteppedPolicy(SteppedBatch):
    """See `gnomon.sim.serving.base.Policy`."""

    def decide(self, queue: Queue, now: float) -> Decision:
        self._calls += 1
        self._hear()
        if self._images is not None:
            self._images.begin()
        self._line.see(queue, now)
        self._runs = {}
        preempted: list[int] = []
        budget = self._go_on(preempted)
        if not preempted:
            self._admit(queue, now, budget)
        self._report_copies(now)
        for request, (new, drafts) in self._runs.items():
            self._advance(self._of[request], new, drafts)
        if not (self._runs or preempted) and queue.visible_s[queue.head] == inf:
            self._check_stuck()
        return self._decision(preempted)

    def _check_stuck(self) -> None:
        """Refuse a load in which nothing would ever run again: requests have blocks that were copied for them and no
        place, and one before them needs those blocks. vLLM's loop goes round for ever."""
        if self._placeless and not (self._copies or self.leaving or any(report.ended for _, report in self._idle)):
            raise InputError(
                f"{len(self._placeless)} requests hold copied blocks and wait behind one that needs them, for ever: "
                "vLLM's scheduler stops here, too",
                where="the KV cache",
                hint="Give it more memory, or leave out priorities, adapters or KV offloading.",
            )

    def _hear(self) -> None:
        """Outputs that have come since the last call."""
        while len(self._reports) > int(self.in_flight):
            report = self._reports.popleft()
            self._pass_images(report.ran)
            for outcome in report.outcomes:
                self._learn(outcome)
            self._hear_of_copies(report.copies)
        while self._idle and self._idle[0][0] <= self._calls:
            self._hear_of_copies(self._idle.popleft()[1])

    def _pass_images(self, ran: list[int]) -> None:
        for request in ran:
            one = self._of.get(request)
            if one is not None and one.place >= 0:
                assert self._images is not None
                self._images.passed(request, one.computed - one.pending)

    def _hear_of_copies(self, report: CopyReport) -> None:
        if self._copies is not None:
            for request in self._copies.learn(report):
                self.resumed.wake(request)

    def _admit(self, queue: Queue, now: float, budget: int) -> None:
        line, waiting, limits = self._line, self.resumed, self._limits
        scheduled = self._in_use()
        waiting.begin()
        while budget > 0 and len(self._batch) < limits.max_sequences:
            request = waiting.next(line.open(scheduled))
            for reached in waiting.reached(request):
                self._name(reached)
            if request == NO_REQUEST:
                break
            one = self._of.get(request) or Running(known=self._prompt[request])
            if self._copies is not None and not one.held:
                found = self._look_up(request, one, now)
                if found == NO_ROOM:
                    break
                if not found:
                    continue
            new = self._come_back(request, one, budget) if one.held else self._enter(request, one, budget)
            if not new:
                break
            waiting.pop()
            line.came_in(request, queue, now, scheduled)
            budget -= new

    def _name(self, request: int) -> None:
        """Blocks that were copied may be found."""
        one = self._of[request]
        one.hashed = one.held
        self.cache.extend(request, one.held)

    def _look_up(self, request: int, one: Running, now: float) -> int:
        """Whether a request can come in at once, for the host has nothing that it needs. Else it is passed over: now,
        or until its blocks are copied; NO_ROOM where there are none for them."""
        assert isinstance(self.cache, TieredBlocks)
        assert self._copies is not None
        found, outside = self.cache.outside(request, one.known)
        if not outside:
            return 1
        if outside == LATER:
            self.resumed.defer()
            return 0
        need, block = self.cache.need(request, one.known), self._limits.block_tokens
        beside = need - (-(-one.known // block) - found) + outside
        if beside > self.cache.free - self._reserved() or self.cache.enter(request, one.known, 0) == NO_ROOM:
            return NO_ROOM
        self.cache.take(outside)
        self._copies.load(request, found, found + outside, now)
        self._of[request], one.goal = one, one.known
        one.held = (found + outside) * block
        one.computed = min(one.held, one.goal - 1)  # the last token is computed again where the copy has it
        if not one.made:
            self.cached[request] = one.computed
        self.resumed.park()
        self._placeless.add(request)
        return 0

    def _reserved(self) -> int:
        """Blocks that prompts which are begun, or have blocks and no place, have not taken yet."""
        begun = [self._of[request] for request in self._placeless]
        for request in self._batch:
            one = self._of[request]
            if one.computed + self._runs.get(request, (0, 0))[0] < one.goal:
                begun.append(one)
        return sum(self._blocks(one.goal, one.held) for one in begun)

    def _come_back(self, request: int, one: Running, budget: int) -> int:
        """The same of one whose blocks were copied."""
        new = self._allowed(request, one.computed, min(one.goal - one.computed, budget))
        if not new:
            return 0
        need = self._blocks(one.computed + new + self._limits.draft_slots, one.held)
        if max(need, self._blocks(one.goal, one.held)) > self.cache.free:
            return self._no_blocks(request)
        self._placeless.discard(request)
        self._seat(request, one)
        self._grow(request, one, new, need)
        self._plan(request, one, new)
        return new

    def _enter(self, request: int, one: Running, budget: int) -> int:
        """Give a waiting request a place and blocks; its tokens of this step, none where there is no room."""
        goal, loaded = one.known, request in self.loaded
        if self._images is not None:
            found = self.cache.peek(request, goal)
            budget = self._allowed(request, found, min(goal - found, budget))
            if not budget:
                return 0
        found = self.cache.enter(request, goal, goal if loaded else budget)
        if found == NO_ROOM:
            return self._no_blocks(request)
        if loaded:
            self.loaded.discard(request)
            found = goal - 1
        self._of[request] = one
        new = min(goal - found, budget)
        if not (one.made or loaded):
            self.cached[request] = found
        self._seat(request, one)
        one.goal, one.computed, one.held, one.hashed = goal, found, found + new, found + new
        slots = self._blocks(one.held + self._limits.draft_slots, one.held)
        if 0 < slots <= self.cache.free:
            self.cache.take(slots)
            one.held += self._limits.draft_slots
        self._plan(request, one, new)
        return new

    def _no_blocks(self, request: int) -> int:
        """A waiting request's images need no room while it finds no blocks."""
        if self._images is not None:
            self._images.drop(request)
        return 0

    def _report_copies(self, now: float) -> None:
        """What the step will say of copies; one that runs nothing says it, too."""
        if self._copies is None:
            return
        prompts = {}
        for request, (new, _) in self._runs.items():
            one = self._of[request]
            prompts[request] = (min(one.computed + new, self._prompt[request]), one.known)
        self._copied = self._copies.report(now, prompts)
        if not prompts:
            self._idle.append((self._calls + 1 + self._lookahead, self._copied))
