"""Which prompts SGLang's next batch takes in: its `PrefillAdder` (checked against 0.5.23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from gnomon.engines.sglang.policy import PrefillFirst
    from gnomon.engines.sglang.scheduling import Scheduling

CONTINUE, NO_TOKEN, OTHER = range(3)
"""What an attempt says of the next one: go on; the KV pool is full; the step's tokens are spent."""


class PrefillAdder:
    """The budget of one batch: tokens of the step, and tokens of the KV pool beside those that running requests are
    expected to fill."""

    __slots__ = ("_chunk", "_current", "_input", "_options", "_state", "_total", "chunks", "prompts")

    CLIP: ClassVar[int] = 4096
    """No request is expected to make more tokens (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""

    def __init__(self, state: PrefillFirst, options: Scheduling) -> None:
        self._state, self._options = state, options
        mixed = len(state.decoding) + len(state.leaving) if options.mixed else 0
        self._total = state.expected_tokens() + mixed
        """Tokens of the pool that are spoken for."""
        self._current = mixed
        """Those of them that this step fills."""
        self._input = options.prefill_tokens - mixed
        self._chunk = None if options.chunk_tokens is None else options.chunk_tokens - mixed
        self.chunks: list[tuple[int, int]] = []
        self.prompts: list[int] = []

    @property
    def _pool(self) -> int:
        return self._state.cache.free * self._state.cache.block

    def budget(self) -> int:
        """Whether another request may be tried."""
        if self._pool <= max(self._total, self._current):
            return NO_TOKEN
        if self._input <= 0 or (self._chunk is not None and self._chunk <= 0):
            return OTHER
        return CONTINUE

    def _reserve(self, new: int, more: int) -> None:
        """Tokens that run now, and those that the request is then expected to make; a page more for its last one."""
        block = self._state.cache.block
        paged = -(-new // block) * block
        self._total += paged + block + more
        self._current += paged + block
        self._input -= paged
        if self._chunk is not None:
            self._chunk -= paged

    def add_chunk(self, request: int) -> None:
        """The next chunk of the prompt that was cut: it goes on whatever the pool holds."""
        state = self._state
        had, goal = state.partial_tokens, state.goal(request)
        limit = self._chunk if self._chunk is not None else goal
        pool = int(self._pool - self._total)
        limit = max(1, min(limit, pool) if pool > 0 else limit)
        room = self._pool + -had % state.cache.block
        new = min(goal - had, limit, room)
        self.chunks.append((new, had))
        self.prompts.append(request)
        state.run_chunk(new)
        self._reserve(new, min(state.output(request), self.CLIP) if had + new == goal else 0)

    def admit(self, waiting: list[int], slots: int) -> tuple[list[int], bool]:
        """Requests from the front of the queue while they fit, and whether the batch is full for those behind them."""
        admitted: list[int] = []
        for request in waiting:
            if self.budget() == OTHER:
                break
            if len(admitted) >= slots or self._state.is_full:
                return admitted, True
            verdict, added = self._add(request)
            if added:
                admitted.append(request)
            if verdict == NO_TOKEN:
                return admitted, bool(self.chunks) or self._state.is_running
            if verdict == OTHER:
                break
        return admitted, False

    def _add(self, request: int) -> tuple[int, bool]:
        """One request: what that says of the next, and whether it is in."""
        state = self._state
        cache, block, goal = state.cache, state.cache.block, state.goal(request)
        pages, node = cache.match(request, (goal - 1) // block)
        found = pages * block
        if (most := self._options.prefill_requests) is not None and len(self.chunks) >= most:
            return OTHER, False
        new, more = goal - found, min(state.output(request), self.CLIP)
        expected = new + min(state.output(request) - state.made(request), self.CLIP) + block
        # What it finds is no longer there to be evicted.
        if expected >= self._pool - cache.unlocked(node) * block - self._total:
            return NO_TOKEN, False
        paged = -(-new // block) * block
        if self._chunk is None:
            if self.chunks and paged >= self._input:
                return OTHER, False
        elif paged > self._chunk:
            new, more = self._chunk // block * block, 0
            if new <= 0:
                return OTHER, False
        cache.enter(request, node)
        self.chunks.append((new, found))
        self.prompts.append(request)
        state.come_in(request, new, found)
        self._reserve(new, more)
        return self.budget(), True
