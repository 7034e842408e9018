"""Chunked mixed batches of prompts that begin with images: vLLM V1's scheduler (checked against 0.24.0).

A step encodes the images whose first tokens it computes, all of an image at once, as far as its encoder budget and the
encoder cache have room. A prompt's chunk ends before an image that finds none, and a request whose next token belongs
to such an image waits for another step; those behind it may run. So several prompts may be begun at once, and each
request is walked in every step.
"""

from __future__ import annotations

from collections import deque
from typing import Self

from gnomon.sim.serving.base import Decision, Queue
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.encoder_cache import EncoderCache
from gnomon.sim.serving.policies.speculative import SpeculativePolicy
from gnomon.spec.serving import ImageLimits, ServingLimits
from gnomon.spec.workload import Requests


class ImagePolicy(SpeculativePolicy):
    """See `gnomon.sim.serving.base.Policy`. Decodes run as with drafts, of which there are none; `variant` of a
    decision is the number of images that its step encodes."""

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel) -> None:
        super().__init__(requests, limits, cache)
        assert limits.images is not None and not limits.drafts
        self._images: ImageLimits = limits.images
        self._encoder = EncoderCache(self._images.cache, self._images.embeddings)
        self._left = 0
        """Images that the encoder budget of this step still has room for."""
        self._encoded = 0
        self._steps: deque[list[int]] = deque()
        """Requests of steps whose outputs the scheduler has not seen."""

    def forked(self, requests: Requests | None) -> Self:
        other = super().forked(requests)
        other._encoder, other._steps = self._encoder.forked(), self._steps.copy()
        return other

    def decide(self, queue: Queue, now: float) -> Decision:
        while len(self._steps) > int(self.in_flight):
            self._read(self._steps.popleft())
        self._left, self._encoded = self._images.budget // self._images.embeddings, 0
        return super().decide(queue, now)

    def _read(self, requests: list[int]) -> None:
        """The outputs of a step are known: images that all of a prompt's steps so far are beyond are not needed."""
        for request in requests:
            one = self._of.get(request)
            if one is not None and one.place >= 0:
                self._encoder.drop(request, (one.computed - one.pending) // self._images.tokens)

    def _go_on(self, preempted: list[int]) -> int:
        limits, at = self._limits, 0
        budget = limits.max_step_tokens
        while at < len(self._batch) and budget > 0:
            request = self._batch[at]
            one = self._of[request]
            at += 1
            if one.pending and one.computed + 2 - one.pending >= self._prompt[request] + self._output[request]:
                continue
            new = min(one.known + one.pending - one.computed, budget, limits.max_context - one.computed - 1)
            new, encoded = self._allowed(request, one.computed, new)
            if new <= 0:
                continue
            if not self._room(one, new, request, preempted):
                break
            self._run(request, one, new)
            self._encode(request, encoded)
            budget -= new
        return budget

    def _enter(self, request: int, budget: int) -> int:
        known = self._of[request].known if request in self._of else self._prompt[request]
        found = self.cache.peek(request, known)
        new, encoded = self._allowed(request, found, min(known - found, budget))
        if new <= 0:
            return 0
        entered = super()._enter(request, new)
        if entered:
            self._encode(request, encoded)
        else:
            self._encoder.drop(request)
        return entered

    def _allowed(self, request: int, computed: int, new: int) -> tuple[int, list[int]]:
        """How many of the next tokens may run, and the images that are encoded for them."""
        images = self._images
        encoded: list[int] = []
        each = images.tokens
        first, last = computed // each, min(-(-(computed + new) // each), images.count)
        for which in range(first, last):
            start = which * each
            part = images.whole and computed + new < start + each
            if part and images.unsplit and computed <= start:
                return start - computed, encoded
            if self._encoder.find((request, which)):
                continue
            if (part and computed < start) or len(encoded) >= self._left or not self._encoder.room(len(encoded) + 1):
                return max(start - computed, 0), encoded
            encoded.append(which)
        return new, encoded

    def _encode(self, request: int, encoded: list[int]) -> None:
        for which in encoded:
            self._encoder.add((request, which))
        self._left -= len(encoded)
        self._encoded += len(encoded)

    def _preempt(self, request: int) -> None:
        self._encoder.drop(request)
        super()._preempt(request)

    def _decision(self, preempted: list[int]) -> Decision:
        return super()._decision(preempted)._replace(variant=self._encoded)

    def apply(self, decision: Decision) -> tuple[list[int], dict[int, int], int]:
        self._steps.append(list(self._runs))
        return super().apply(decision)

    def release(self) -> None:
        for request in self.leaving:
            self._encoder.drop(request)
        super().release()
