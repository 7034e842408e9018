"""Chunked mixed batches whose decodes verify drafts: vLLM V1's scheduler with speculative decoding (checked against
0.24.0).

Every decode runs the token it made last and `drafts` more, and makes as many tokens as were accepted, and one.
Sequences so advance unequally, and each is walked in every step. How many drafts are accepted is drawn for each
sequence and step, in order, from a stream of its own: the same requests, seed and shares give the same figures to the
bit, and what a request draws does not depend on others. With lookahead a step is scheduled before the one in flight
has said what it accepted: as if all of it were, so that a request whose last token is in flight may run once more for
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

from gnomon.sim.serving.base import CALL, Decision, Queue
from gnomon.sim.serving.caches.base import NO_ROOM, CacheModel
from gnomon.sim.serving.run import StepTotals
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

MASK = (1 << 64) - 1
Groups = Sequence[tuple[float, Sequence[float]]]


def uniform(seed: int, request: int, step: int) -> float:
    """A number from 0 to 1 for a step of a request (a hash, SplitMix64's)."""
    bits = (seed * 0x9E3779B97F4A7C15 + request * 0xBF58476D1CE4E5B9 + step * 0x94D049BB133111EB + 0x1234567) & MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return ((bits ^ (bits >> 31)) >> 11) / (1 << 53)


def accepted(groups: Groups, seed: int, request: int, step: int) -> int:
    """Drafts that are accepted in a sequence's so manieth step with drafts (from 1 on): of its group's `shares`, the
    first i in `shares[i - 1]` of all steps. One number decides, and one for each request which group it is in."""
    at, left = 0, uniform(seed, request, 0) if len(groups) > 1 else 0.0
    while at < len(groups) - 1 and left >= groups[at][0]:
        left -= groups[at][0]
        at += 1
    drawn = uniform(seed, request, step)
    count = 0
    for share in groups[at][1]:
        if drawn >= share:
            break
        count += 1
    return count


@dataclass(slots=True)
class Running:
    """A request in the batch or that waits, as the scheduler sees it."""

    known: int
    """Tokens that it has and that have come back, prompt and output."""
    made: int = 0
    """Of its output, with what is in flight."""
    computed: int = 0
    """Tokens that scheduled steps compute, all drafts among them."""
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


class SpeculativePolicy:
    """See `gnomon.sim.serving.base.Policy`."""

    held_s = 0.0

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel) -> None:
        self._prompt: list[int] = requests.input_tokens.tolist()
        self._output: list[int] = requests.output_tokens.tolist()
        self._limits, self.cache = limits, cache
        self._lookahead = bool(limits.lookahead)
        self._of: dict[int, Running] = {}
        self._batch: list[int] = []
        self._runs: dict[int, tuple[int, int]] = {}
        """Of the last decision: tokens of each request, and drafts among them."""
        self._kept: dict[int, int] = {}
        """Drafts that are accepted of each."""
        self.variant = 0
        self._outcomes: deque[list[StepOutcome]] = deque()
        """Of steps whose outputs the scheduler has not seen."""
        self._least_free = limits.kv_blocks
        self._counts = [0] * 7
        self._stays = 0
        self.in_flight = False
        self.preemptions = 0
        self.decoding: dict[int, tuple[int, int]] = {}
        self.leaving: dict[int, int] = {}
        self.resumed: list[int] = []
        self.cached: dict[int, int] = {}
        self.loaded: set[int] = set()

    @property
    def count(self) -> int:
        return len(self._batch)

    @property
    def context(self) -> int:
        return sum(self._of[request].computed for request in self._batch)

    @property
    def peak_blocks(self) -> int:
        return self._limits.kv_blocks - self._least_free

    def add(self, prompt: int, output: int, node: int = -1, loaded: bool = False) -> int:
        self._prompt.append(prompt)
        self._output.append(output)
        self.cache.add(node)
        if loaded:
            self.loaded.add(len(self._prompt) - 1)
        return len(self._prompt) - 1

    def forked(self, requests: Requests | None) -> Self:
        other = copy(self)
        other._prompt, other._output = (
            (requests.input_tokens.tolist(), requests.output_tokens.tolist()) if requests else ([], [])
        )
        other._of = {request: copy(one) for request, one in self._of.items()}
        other._batch, other._runs, other._counts = self._batch[:], self._runs.copy(), self._counts[:]
        other._outcomes = self._outcomes.copy()
        other.leaving, other.resumed = self.leaving.copy(), self.resumed[:]
        other.cached, other.loaded = self.cached.copy(), self.loaded.copy()
        other.cache = self.cache.forked(requests)
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

    def decide(self, queue: Queue, now: float) -> Decision:
        while len(self._outcomes) > int(self.in_flight):
            self._learn(self._outcomes.popleft())
        self._runs = {}
        preempted: list[int] = []
        budget = self._go_on(preempted)
        if not preempted:
            self._admit(queue, now, budget)
        return self._decision(preempted)

    def _learn(self, outcomes: list[StepOutcome]) -> None:
        """The outputs of a step are known."""
        for outcome in outcomes:
            one = self._of.get(outcome.request)
            if one is None:
                continue
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
            if new <= 0:
                continue
            if not self._room(one, new, request, preempted):
                break
            self._run(request, one, new)
            budget -= new
        return budget

    def _room(self, one: Running, new: int, request: int, preempted: list[int]) -> bool:
        """Blocks for so many more tokens of a request; who is in their way is preempted. False where it is itself."""
        block, tokens = self._limits.block_tokens, one.computed + new + self._limits.draft_slots
        need = -(-tokens // block) - -(-one.held // block)
        while need > self.cache.free:
            last = self._batch.pop()
            self._preempt(last)
            preempted.append(last)
            if last == request:
                return False
        if need > 0:
            self.cache.take(need)
        if tokens > one.held:
            one.held = tokens
        named = min(one.computed + new, one.known)
        if named > one.hashed:
            one.hashed = named
        if one.computed < one.goal:
            self.cache.extend(request, min(one.computed + new, one.goal))
        return True

    def _run(self, request: int, one: Running, new: int) -> None:
        drafts = 0
        if one.drafts:
            drafts = min(max(new + one.computed - one.known - one.pending, 0), one.drafts)
        one.drafts = 0
        self._runs[request] = (new, drafts)
        one.computed += new
        through = one.computed >= one.known + one.pending
        if through and self._lookahead:
            one.pending += 1 + drafts
            one.drafts = self._limits.drafts

    def _preempt(self, request: int) -> None:
        one = self._of[request]
        self.preemptions += 1
        self.cache.preempt(request, one.held, one.hashed)
        if request in self.leaving:
            del self.leaving[request]
            del self._of[request]
            return
        one.computed = one.drafts = one.held = one.hashed = 0
        one.place = -1
        self.resumed.append(request)

    def _admit(self, queue: Queue, now: float, budget: int) -> None:
        limits, resumed, visible = self._limits, self.resumed, queue.visible_s
        while budget > 0 and len(self._batch) < limits.max_sequences:
            if resumed:
                request = resumed[-1]
            elif visible[queue.head] <= now:
                request = queue.head
            else:
                break
            new = self._enter(request, budget)
            if not new:
                break
            if resumed:
                resumed.pop()
            else:
                queue.scheduled_s[request] = now
                queue.head = request + 1
            budget -= new

    def _enter(self, request: int, budget: int) -> int:
        """Give a waiting request a place and blocks; its tokens of this step, none where there is no room."""
        one = self._of.get(request) or Running(known=self._prompt[request])
        goal, loaded = one.known, request in self.loaded
        found = self.cache.enter(request, goal, goal if loaded else budget)
        if found == NO_ROOM:
            return 0
        if loaded:
            self.loaded.discard(request)
            found = goal - 1
        self._of[request] = one
        new = min(goal - found, budget)
        if (found or self.cached) and not one.made and not loaded:
            self.cached[request] = found
        self._batch.append(request)
        self._stays += 1
        one.place, one.goal, one.computed, one.held, one.hashed = self._stays, goal, found, found + new, found + new
        self._slots(one)
        self._run(request, one, new)
        return new

    def _slots(self, one: Running) -> None:
        """Room for drafts behind a prompt, where a model writes them and there is some."""
        block, tokens = self._limits.block_tokens, one.held + self._limits.draft_slots
        need = -(-tokens // block) - -(-one.held // block)
        if 0 < need <= self.cache.free:
            self.cache.take(need)
            one.held = tokens

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
        self.variant = list(self._kept.values()).count(0) if self._limits.draft_ragged else 0
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
        self._outcomes.append(outcomes)
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
            one = self._of.pop(request)
            self.cache.leave(request, one.held, max(tokens, one.hashed))
            self._batch.remove(request)
        self.leaving = {}
