"""SGLang's scheduler: prompts first, decodes between them (checked against 0.5.23).

A call makes a batch of prompts where there are any to run: the rest of the one that was cut into chunks, then waiting
ones, while the step's tokens, the request slots and the KV pool suffice for what they, and those that decode already,
are expected to make. Decodes pause meanwhile, or ride along with `enable_mixed_chunk`. Where nothing waits, or the last
attempt found the batch full and nobody has left since, all decodes make one token. Decodes that find no page are
retracted: those with the fewest output tokens first, until the others fit. They wait behind all others and compute
prompt and output again, but for what is still in the cache.

How much decodes are expected to make is a share of what they may, `new_token_ratio`: it begins high, sinks with every
decode step to its least value, and is set anew by a retraction (`NewTokenRatioTracker`). A request may make as many
tokens as it does make: `max_new_tokens` is its output, and `ignore_eos` is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from gnomon.engines.sglang.adder import PrefillAdder
from gnomon.engines.sglang.order import Order
from gnomon.engines.sglang.radix import RadixTree
from gnomon.engines.sglang.scheduling import Scheduling
from gnomon.sim.serving.base import CALL, NO_REQUEST, ONCE, UNTIL_ARRIVAL, UNTIL_END, Decision, Queue
from gnomon.sim.serving.batch import BatchState
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

INITIAL_RATIO, LEAST_SHARE, DECAY_STEPS = 0.7, 0.14, 600
"""SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR, SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS of environ.py."""
RETRACT_STEPS = 20
"""SGLANG_RETRACT_DECODE_STEPS: tokens that each decode left should find room for after a retraction."""


class PrefillFirst(BatchState):
    """See `gnomon.sim.serving.base.Policy`. All requests that wait, new ones too, are in `resumed`."""

    __slots__ = (
        "_decoded",
        "_first_place",
        "_fresh",
        "_full",
        "_look",
        "_next_place",
        "_options",
        "_order",
        "_place",
        "_ratio",
        "_ratio_steps",
        "_waits",
    )  # fmt: skip

    cache: RadixTree  # type: ignore[assignment]

    def __init__(self, requests: Requests, limits: ServingLimits, cache: RadixTree, options: Scheduling) -> None:
        super().__init__(requests, limits, cache)  # type: ignore[arg-type]
        self._options, self._look = options, bool(limits.lookahead)
        self._order = Order(options.order, options.radix, max(self._output, default=0))
        self._full = False
        """`batch_is_full`: no attempt to let requests in before one leaves."""
        self._fresh: list[int] = []
        """Requests whose prompt the last scheduled step completes, in order: they enter the tree with its result."""
        self._waits = False
        """Whether the last call found nothing to run."""
        self._decoded = False
        """Whether the last scheduled step had the decodes."""
        self._place: dict[int, int] = {}
        """Where each request is in the running batch, by a number; prompts join it behind those that decode, or before
        them where these rode along."""
        self._first_place = self._next_place = 0
        self._ratio, self._ratio_steps = self._first_ratio, 0
        """`new_token_ratio` when it was last set, and how many decode steps ago."""

    def forked(self, requests: Requests | None) -> Self:
        other = super().forked(requests)
        other._fresh, other._place = self._fresh[:], self._place.copy()
        other._order = self._order.forked(max(other._output, default=0))
        return other

    def add(
        self, prompt: int, output: int, node: int = -1, loaded: bool = False, adapter: int = -1, priority: int = 0
    ) -> int:
        self._order.add(output)
        return super().add(prompt, output, node, loaded, adapter, priority)

    @property
    def _first_ratio(self) -> float:
        return min(INITIAL_RATIO * self._options.conservativeness, 1.0)

    @property
    def ratio(self) -> float:
        """The share of their remaining tokens that decodes are expected to make."""
        first = self._first_ratio
        least = min(first * LEAST_SHARE, 1.0)
        return max(self._ratio - self._ratio_steps * ((first - least) / DECAY_STEPS), least)

    @property
    def is_full(self) -> bool:
        return self._full

    @property
    def is_running(self) -> bool:
        """Whether the running batch has anybody, also one whose last token is in flight."""
        return bool(self.decoding or self.leaving)

    def output(self, request: int) -> int:
        """Tokens that a request may make."""
        return self._output[request]

    def made(self, request: int) -> int:
        """Tokens that it had made before it was retracted."""
        return self._made.get(request, 0)

    def pull(self, queue: Queue, now: float) -> None:
        """Requests that have become visible join those that wait."""
        visible, head = queue.visible_s, queue.head
        while visible[head] <= now:
            self.resumed.append(head)
            head += 1
        queue.head = head

    def horizon(self, queue: Queue, now: float) -> int:
        """The decodes alone go on where they find pages and nothing waits, or an attempt to let a request in has failed
        since one left."""
        if not self._look:
            self.settle()
        self.pull(queue, now)
        if self.partial != NO_REQUEST or not self.decoding:
            return CALL
        if self._crossings[self.clock % self._block] > self.cache.free:
            return CALL
        if not self.resumed:
            return UNTIL_ARRIVAL
        if not self._full:
            return CALL
        return ONCE if self.leaving else UNTIL_END

    def decide(self, queue: Queue, now: float) -> Decision:
        if not self.in_flight:
            self.settle()
            if not (self.count or self.resumed or queue.visible_s[queue.head] < now):
                # The engine was idle until now, and forgets what it expected.
                self._ratio, self._ratio_steps = self._first_ratio, 0
        self.pull(queue, now)
        preempted: list[int] = []
        if self.partial != NO_REQUEST:
            self.cache.checkpoint(self.partial, self.partial_tokens, self._prompt[self.partial])
            self._room_for_chunk(preempted)
        adder = self._prefill(queue, now)
        decision = self._decode(preempted) if adder is None else self._prefill_decision(adder, preempted)
        self._waits = not (decision.decodes or decision.chunks)
        return decision

    def _prefill_decision(self, adder: PrefillAdder, preempted: list[int]) -> Decision:
        """The batch of prompts, and the decodes where they ride along and find pages."""
        alone = not (self.decoding or self.leaving)
        decodes = context = 0
        if self._options.mixed and self.decoding:
            need = self._crossings[self.clock % self._block]
            self.cache.make_room(need)
            if need <= self.cache.free:
                self._take_for_decodes(need)
                decodes, context, alone = len(self.decoding), self.context, True
        cut = self.partial != NO_REQUEST and self.partial_tokens < self.goal(self.partial)
        if alone or cut:  # the running batch will be a new one, or the cut prompt is taken out of this one
            self._full = False
        tokens = decodes + sum(new for new, _ in adder.chunks)
        return Decision(decodes, context, adder.chunks, adder.prompts, preempted, tokens)

    def _prefill(self, queue: Queue, now: float) -> PrefillAdder | None:
        """Let in what finds tokens, slots and pages; none where there is nothing to run."""
        if not (self.decoding or self.leaving):
            self._full = False
        waiting, partial = self.resumed, self.partial
        if partial == NO_REQUEST:
            if self._full or not waiting:
                return None
            if self.count >= self._places:
                self._full = True
                return None
        self._order.sort(self)
        adder = PrefillAdder(self, self._options)
        if partial != NO_REQUEST:
            adder.add_chunk(partial)
        admitted, left = adder.admit(waiting, self._places - self.count)
        self._full = self._full or left
        if not adder.chunks:
            return None
        for request in admitted:
            if request not in self._made:
                queue.scheduled_s[request] = now
        del waiting[: len(admitted)]
        self._take_for_prompts(adder)
        return adder

    def _take_for_prompts(self, adder: PrefillAdder) -> None:
        """Pages for a batch of prompts; one more for each is evicted where pages have several tokens."""
        block, cache = self._block, self.cache
        pages = sum(-(-(new + had) // block) + (-had // block) for new, had in adder.chunks)
        if block > 1:
            tokens = sum(new for new, _ in adder.chunks)
            cache.make_room(-(-tokens // block) + len(adder.chunks))
        cache.take(pages)

    def _take_for_decodes(self, pages: int, before: int = 0) -> None:
        """Pages for a decode step after others that took `before`; one for each decode is evicted where pages have
        several tokens."""
        if self._block > 1:
            self.cache.make_room(before + len(self.decoding))
        self.cache.take(before + pages)

    def come_in(self, request: int, new: int, found: int) -> None:
        """A request gets its slot, and its first tokens run."""
        if found + new < self.goal(request):
            self.partial, self.partial_tokens = request, found + new
        self.count += 1
        if request not in self._made:
            self.cached[request] = found
        self._count_chunk(new, found)

    def run_chunk(self, new: int) -> None:
        """The next tokens of the prompt that was cut."""
        self._count_chunk(new, self.partial_tokens)
        self.partial_tokens += new

    def expected_tokens(self) -> float:
        """What the running batch is expected to make from now on (`_get_running_request_total_token_offset`): of each
        request what it may still make, as far as the scheduler knows, up to a limit, times the ratio."""
        clock, decoding, clip = self.clock, self.decoding, PrefillAdder.CLIP
        ahead = self._in_last_step()
        if self._order.longest_output <= clip:
            left = sum(end for _, end in decoding.values()) - len(decoding) * clock
            left += len(decoding) if ahead is None else len(ahead)
        else:
            left = sum(min(end - clock + (ahead is None or each in ahead), clip) for each, (_, end) in decoding.items())
        return (left + len(self.leaving)) * self.ratio

    def _in_last_step(self) -> set[int] | None:
        """Decodes whose last token is in flight; none for all of them."""
        if not self.in_flight:
            return set()
        return None if self._decoded else {each for each in self._fresh if each in self.decoding}

    def _decode(self, preempted: list[int]) -> Decision:
        """One token for all decodes, or for those that are left after a retraction; nothing where they wait for pages
        of requests whose last token is in flight."""
        need = self._crossings[self.clock % self._block]
        if need > self.cache.free:
            self.cache.make_room(need)  # all that can be evicted goes first
            self._full = False
            if self.leaving:
                return Decision(0, 0, [], [], preempted, 0)
            self._retract(preempted)
            need = self._crossings[self.clock % self._block]
        elif self.decoding:
            self._ratio_steps += 1
        decodes = len(self.decoding)
        if decodes:
            self._take_for_decodes(need)
        return Decision(decodes, self.context, [], [], preempted, decodes)

    def known_outputs(self, requests: Iterable[int]) -> dict[int, int]:
        """Output tokens of decodes that have come back."""
        clock, ahead = self.clock, self._in_last_step()
        return {
            each: self._output[each] - (self.decoding[each][1] - clock) - (ahead is None or each in ahead)
            for each in requests
        }

    def _retract(self, preempted: list[int]) -> None:
        """Take decodes out until the others find pages for their next token, one at least; one stays."""
        known = self.known_outputs(self.decoding)
        kept = sorted(self.ordered(), key=lambda each: (known[each], -self._prompt[each]), reverse=True)
        slot = self.clock % self._block
        while len(kept) > 1:
            request = kept.pop()
            self._take_out(request, known[request])
            preempted.append(request)
            self.cache.make_room(max(-(-len(kept) * RETRACT_STEPS // self._block), self._crossings[slot]))
            if self._crossings[slot] <= self.cache.free:
                break
        made = sum(known[each] for each in kept) + RETRACT_STEPS * len(kept)
        self._ratio, self._ratio_steps = min(1.0, made / (sum(self._output[each] for each in kept) + 1)), 0

    def _take_out(self, request: int, known: int) -> None:
        """Retract a decode: its token in flight is lost."""
        self.cache.retract(request, self._drop(request))
        self._made[request] = known
        if request in self._fresh:
            self._fresh.remove(request)
        del self._place[request]
        self.resumed.append(request)
        self.count -= 1
        self.preemptions += 1

    def _room_for_chunk(self, preempted: list[int]) -> None:
        """The prompt that was cut finds one more page, at least. SGLang raises an error where it does not, which only
        mixed batches can bring about; here decodes are retracted."""
        inside = -self.partial_tokens % self._block
        while not (inside or self.cache.free) and self.decoding:
            known = self.known_outputs(self.decoding)
            request = min(self.ordered(), key=lambda each: (known[each], -self._prompt[each]))
            self._take_out(request, known[request])
            preempted.append(request)

    def apply(self, decision: Decision) -> tuple[list[int], dict[int, int], int]:
        firsts, ended, outputs = super().apply(decision)
        self.settle()  # the result of the step before this one
        self._fresh = [each for each in decision.prompts if each in self.decoding or each in ended]
        self._decoded = bool(decision.decodes)
        self._join()
        return firsts, ended, outputs

    def _join(self) -> None:
        """Prompts that are through join the running batch."""
        count = len(self._fresh)
        if self._decoded:
            self._first_place -= count
            first = self._first_place
        else:
            first = self._next_place
            self._next_place += count
        self._place |= {request: first + i for i, request in enumerate(self._fresh)}

    def ordered(self) -> Iterator[int]:
        return iter(sorted(self.decoding, key=self._place.__getitem__))

    def advance(self, steps: int) -> None:
        """Take the pages of so many decode steps, and move the clock; results of the step before them are known after
        the first."""
        block, crossings = self._block, self._crossings
        slot, first = self.clock % block, crossings[self.clock % block]
        self._take_for_decodes(first)
        self._note_free()
        self.settle()
        if steps > 1:
            if self.leaving:
                self.release()
            rounds, rest = divmod(steps - 2, block)
            before = rounds * len(self.decoding) + sum(crossings[(slot + 1 + i) % block] for i in range(rest))
            self._take_for_decodes(crossings[(slot + steps - 1) % block], before)
            self._note_free()
        self.clock += steps
        self._ratio_steps += steps
        self._decoded = True

    def _note_free(self) -> None:
        if self.cache.free < self._least_free:
            self._least_free = self.cache.free

    def settle(self) -> None:
        """Prompts whose result is known enter the tree."""
        for request in self._fresh:
            if request in self.leaving:
                self._finish(request)
            else:
                self.cache.checkpoint(request, self.goal(request), self._prompt[request])
        self._fresh = []

    def _finish(self, request: int) -> None:
        self.cache.finish(request, self.leaving.pop(request), self._prompt[request])
        del self._place[request]
        self.count -= 1
        self._full = False

    def release(self) -> None:
        if self._waits or not self._look:  # nothing was scheduled since the step whose result this is
            self.settle()
            self._waits = False
        for request in sorted(self.leaving, key=self._place.__getitem__):
            self._finish(request)
