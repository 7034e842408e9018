"""The batch of a scheduler that walks request by request: places, blocks, drafts, and what steps make."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Self

from gnomon.cost.step import variant_of
from gnomon.sim.serving.base import CALL, Decision, Queue
from gnomon.sim.serving.batch import as_array, grown
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.caches.tiered import TieredBlocks
from gnomon.sim.serving.policies.copies import BlockCopies, CopyReport
from gnomon.sim.serving.policies.drafts import accepted
from gnomon.sim.serving.policies.images import PromptImages
from gnomon.sim.serving.policies.line import WaitingLine
from gnomon.sim.serving.run import StepTotals
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

NOTHING = CopyReport()


@dataclass(slots=True)
class Running:
    """A request in the batch or that waits, as the scheduler sees it."""

    known: int
    """Tokens that it has and that have come back, prompt and output."""
    made: int = 0
    """Of its output, with what is in flight."""
    computed: int = 0
    """Tokens that scheduled steps compute, all drafts among them, or that were copied from the host."""
    pending: int = 0
    """Tokens that steps in flight make, if all drafts are accepted."""
    drafts: int = 0
    """That its next step may verify."""
    goal: int = 0
    """Tokens to compute before this stay in the batch makes its first token."""
    held: int = 0
    """Tokens that its blocks are for."""
    hashed: int = 0
    """Tokens whose full blocks others may find."""
    steps: int = 0
    """With drafts, so far."""
    place: int = -1
    """Its stay in the batch, by number; -1 where it waits."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step makes for a request."""

    request: int
    tokens: int
    rejected: int


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step says once its outputs are known."""

    outcomes: list[StepOutcome]
    copies: CopyReport
    ran: list[int]
    """Requests of the step, where prompts have images."""


class SteppedBatch:
    """All of a `gnomon.sim.serving.base.Policy` but `decide`."""

    leaves_step = False
    """Whether a request that preempts itself leaves the step to those behind it, and whoever is preempted shifts nobody
    out of it. Under vLLM 0.24 neither is so."""

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel) -> None:
        self._prompt, self._output = as_array(requests.input_tokens), as_array(requests.output_tokens)
        self._limits, self.cache = limits, cache
        self._lookahead = bool(limits.lookahead)
        self._of: dict[int, Running] = {}
        self._batch: list[int] = []
        self._runs: dict[int, tuple[int, int]] = {}
        """Of the last decision: tokens of each request, and drafts among them."""
        self._kept: dict[int, int] = {}
        """Drafts that are accepted of each."""
        self._line = WaitingLine(requests, limits)
        self.resumed = self._line.waiting
        self._copies = BlockCopies(limits, cache) if isinstance(cache, TieredBlocks) else None
        self._images = PromptImages(limits.images, requests) if limits.images else None
        self._placeless: set[int] = set()
        """Requests that have blocks for copies from the host, and no place yet."""
        self.variant, self.held_s = 0, 0.0
        self._reports: deque[StepReport] = deque()
        """Of steps whose outputs the scheduler has not seen."""
        self._copied = NOTHING
        """What the last decision's step will say of copies."""
        self._calls = 0
        self._idle: deque[tuple[int, CopyReport]] = deque()
        """Of calls that found nothing to run, and from which call on the scheduler knows what they say."""
        self._least_free = limits.kv_blocks
        self._counts = [0] * 7
        self._stays = 0
        self.in_flight = False
        self.preemptions = 0
        self.decoding: dict[int, tuple[int, int]] = {}
        self.leaving: dict[int, int] = {}
        self.cached = array("q", bytes(8 * len(requests)))
        self.loaded: set[int] = set()

    @property
    def count(self) -> int:
        return len(self._batch)

    @property
    def away(self) -> int:
        return len(self._line.again)

    @property
    def context(self) -> int:
        return sum(self._of[request].computed for request in self._batch)

    @property
    def peak_blocks(self) -> int:
        return self._limits.kv_blocks - self._least_free

    def add(
        self, prompt: int, output: int, node: int = -1, loaded: bool = False, adapter: int = -1, priority: int = 0
    ) -> int:
        self._prompt.append(prompt)
        self._output.append(output)
        self.cached.append(0)
        self._line.add(adapter, priority)
        self.cache.add(node)
        if loaded:
            self.loaded.add(len(self._prompt) - 1)
        return len(self._prompt) - 1

    def forked(self, requests: Requests | None) -> Self:
        other = copy(self)
        known = (requests.input_tokens, requests.output_tokens) if requests else ((), ())
        other._prompt, other._output = (as_array(column) for column in known)
        other._of = {request: copy(one) for request, one in self._of.items()}
        other._batch, other._runs, other._counts = self._batch[:], self._runs.copy(), self._counts[:]
        other._reports, other._idle = self._reports.copy(), self._idle.copy()
        other._line = self._line.forked(requests)
        other.leaving, other.resumed = self.leaving.copy(), other._line.waiting
        other._placeless = self._placeless.copy()
        other.cached, other.loaded = grown(self.cached, requests), self.loaded.copy()
        other.cache = self.cache.forked(requests)
        other._images = self._images.forked(requests) if self._images else None
        if self._copies is not None:
            assert isinstance(other.cache, TieredBlocks)
            other._copies = self._copies.forked(other.cache)
        return other

    def horizon(self, queue: Queue, now: float) -> int:
        return CALL

    def to_next_end(self) -> tuple[int, int]:
        raise NotImplementedError("steps are decided one by one")

    def advance(self, steps: int) -> None:
        raise NotImplementedError("steps are decided one by one")

    def retire(self) -> dict[int, int]:
        raise NotImplementedError("steps are decided one by one")

    def ordered(self) -> Iterator[int]:
        return (request for request in self._runs if self._is_decode(request))

    def shares(self) -> Iterator[tuple[int, int]]:
        return ((request, self._runs[request][0]) for request in self.ordered())

    def _is_decode(self, request: int) -> bool:
        one = self._of[request]
        return one.computed - self._runs[request][0] >= one.goal

    def totals(self) -> StepTotals:
        names = ("steps", "decodes", "decode_context", "prefills", "prefill_tokens", "prefill_pairs", "prefill_context")
        return StepTotals(**dict(zip(names, self._counts, strict=True)))

    def _learn(self, outcome: StepOutcome) -> None:
        one = self._of.get(outcome.request)
        if one is None:
            return
        if one.computed:
            one.computed -= outcome.rejected
        if self._lookahead:
            one.pending -= outcome.rejected + outcome.tokens
        one.known += outcome.tokens
        if one.place >= 0:
            if self._lookahead:
                one.hashed = max(one.hashed, one.computed - one.pending)
            else:
                one.drafts = self._limits.drafts

    def _go_on(self, preempted: list[int]) -> int:
        """Tokens for the batch, one request after the other; the budget that is left."""
        limits, at = self._limits, 0
        budget = limits.max_step_tokens
        while at < len(self._batch) and budget > 0:
            request = self._batch[at]
            one = self._of[request]
            at += 1
            last = self._prompt[request] + self._output[request]
            if one.pending and one.computed + 2 - one.pending >= last:
                continue
            new = one.known + one.drafts + one.pending - one.computed
            new = min(new, budget, limits.max_context - one.computed - 1)
            new = self._allowed(request, one.computed, new)
            if new <= 0:
                continue
            while (need := self._blocks(one.computed + new + limits.draft_slots, one.held)) > self.cache.free:
                victim = self._victim()
                if victim in self._runs or (self.leaves_step and self._batch.index(victim) < at):
                    at -= 1
                self._batch.remove(victim)
                budget += self._runs.pop(victim, (0, 0))[0]
                self._preempt(victim)
                preempted.append(victim)
                if victim == request:
                    break
            if request in preempted:
                if self.leaves_step:
                    continue
                return budget
            self._grow(request, one, new, need)
            self._plan(request, one, new)
            budget -= new
        return budget

    def _allowed(self, request: int, computed: int, new: int) -> int:
        """How many of the next tokens of a request may run, for the images in its prompt."""
        return new if self._images is None or new <= 0 else self._images.allowed(request, computed, new)

    def _victim(self) -> int:
        """Who leaves the batch where blocks run out: the last, or the highest priority number."""
        if not self._limits.by_priority:
            return self._batch[-1]
        priority = self._line.priority
        return max(self._batch, key=lambda one: (priority[one], one))

    def _blocks(self, tokens: int, held: int) -> int:
        """Blocks for so many tokens, beyond those of tokens that there are blocks for."""
        block = self._limits.block_tokens
        return max(-(-tokens // block) - -(-held // block), 0)

    def _grow(self, request: int, one: Running, new: int, need: int) -> None:
        """Take the blocks of so many more tokens of a request of the batch."""
        if need:
            self.cache.take(need)
        tokens = one.computed + new + self._limits.draft_slots
        if tokens > one.held:
            one.held = tokens
        named = min(one.computed + new, one.known)
        if named > one.hashed:
            one.hashed = named
        if one.computed < one.goal:
            self.cache.extend(request, min(one.computed + new, one.goal))

    def _plan(self, request: int, one: Running, new: int) -> None:
        """So many tokens of a request are part of the decision."""
        drafts = 0
        if one.drafts:
            drafts = min(max(new + one.computed - one.known - one.pending, 0), one.drafts)
            one.drafts = 0
        self._runs[request] = (new, drafts)
        if self._images is not None:
            self._images.encode(request)

    def _advance(self, one: Running, new: int, drafts: int) -> None:
        """The decision is made."""
        one.computed += new
        if self._lookahead and one.computed >= one.known + one.pending:
            one.pending += 1 + drafts
            one.drafts = self._limits.drafts

    def _preempt(self, request: int) -> None:
        one = self._of[request]
        self.preemptions += 1
        if self._images is not None:
            self._images.drop(request)
        self.cache.preempt(request, one.held, one.hashed)
        if request in self.leaving:
            del self.leaving[request]
            self._forget(request)
            return
        one.computed = one.drafts = one.held = one.hashed = 0
        one.place = -1
        self._line.preempted(request)

    def _adapters(self) -> set[int]:
        """Of the decision so far."""
        return {self._line.adapter[request] for request in self._runs} - {-1} if self._line.slots else set()

    def _in_use(self) -> set[int]:
        """Adapters that have a slot before requests come in."""
        return self._adapters()

    def _seat(self, request: int, one: Running) -> None:
        self._batch.append(request)
        self._stays += 1
        one.place = self._stays

    def _decision(self, preempted: list[int]) -> Decision:
        chunks: list[tuple[int, int]] = []
        prompts: list[int] = []
        decodes = context = tokens = 0
        for request, (new, _) in self._runs.items():
            one = self._of[request]
            before = one.computed - new
            tokens += new
            if before < one.goal:
                chunks.append((new, before))
                prompts.append(request)
            else:
                decodes += 1
                context += before
        self._accept()
        adapters, missing = self._adapters(), 0
        self.held_s = self._line.slots.use(adapters) if self._line.slots and chunks else 0.0
        if self._limits.draft_ragged:
            missing = list(self._kept.values()).count(0)
        self.variant = variant_of(len(adapters), missing, self._images.encoded if self._images else 0)
        return Decision(decodes, context, chunks, prompts, preempted, tokens, self.variant)

    def _accept(self) -> None:
        """How many drafts of the decision will be accepted; of a request that ends with the step in flight it does not
        matter."""
        limits, self._kept = self._limits, {}
        for request, (_, drafts) in self._runs.items():
            one = self._of[request]
            if drafts and one.made < self._output[request]:
                one.steps += 1
                found = accepted(limits.draft_shares, limits.draft_seed, request, one.steps)
                self._kept[request] = min(found, drafts)

    def apply(self, decision: Decision) -> tuple[list[int], dict[int, int], int]:
        if self.cache.free < self._least_free:
            self._least_free = self.cache.free
        outcomes: list[StepOutcome] = []
        firsts: list[int] = []
        ended: dict[int, int] = {}
        for request, (_, drafts) in self._runs.items():
            one = self._of[request]
            left = self._output[request] - one.made
            if one.computed < one.goal or not left:
                continue
            kept = self._kept.get(request, 0)
            made = min(kept + 1, left)
            if not one.made:
                firsts.append(request)
            one.made += made
            outcomes.append(StepOutcome(request, made, drafts - kept))
            if one.made == self._output[request]:
                ended[request] = self._prompt[request] + one.made - 1
        self._reports.append(StepReport(outcomes, self._copied, list(self._runs) if self._images else []))
        self._count(decision)
        return firsts, ended, len(outcomes)

    def _count(self, decision: Decision) -> None:
        new = sum(tokens for tokens, _ in decision.chunks)
        pairs = sum(q * c + q * (q + 1) // 2 for q, c in decision.chunks)
        read = new + sum(cached for _, cached in decision.chunks)
        sums = (1, decision.decodes, decision.context + decision.decodes, len(decision.chunks), new, pairs, read)
        self._counts = [count + more for count, more in zip(self._counts, sums, strict=True)]

    def release(self) -> None:
        for request, tokens in self.leaving.items():
            one = self._of[request]
            # Without lookahead, only a further call would give the blocks a hash that the last step's drafts fill.
            self.cache.leave(request, one.held, max(tokens, one.hashed) if self._lookahead else one.hashed)
            self._batch.remove(request)
            self._forget(request)
        self.leaving = {}

    def _forget(self, request: int) -> None:
        """A request has ended."""
        if self._images is not None:
            self._images.drop(request)
        del self._of[request]
        if isinstance(self.cache, TieredBlocks):
            self.cache.forget(request)
