"""Prompts that begin with images: vLLM V1's scheduler (checked against 0.24.0).

A step encodes the images whose first tokens it computes, all of an image at once, as far as its encoder budget and the
encoder cache have room. A prompt's chunk ends before an image that finds none, and a request whose next token belongs
to such an image waits for another step; those behind it may run. So several prompts may be begun at once.
"""

from __future__ import annotations

from copy import copy
from typing import Self

from gnomon.sim.serving.policies.encoder_cache import EncoderCache
from gnomon.spec.serving import ImageLimits
from gnomon.spec.workload import Requests


class PromptImages:
    """Which images a call of the scheduler has encoded, and what that leaves to others."""

    __slots__ = ("_cache", "_chosen", "_counts", "_encoded", "_left", "_limits")

    def __init__(self, limits: ImageLimits, requests: Requests) -> None:
        self._limits = limits
        self._counts = _counts(requests)
        """Images of each request, where they differ."""
        self._cache = EncoderCache(limits.cache, limits.embeddings)
        self._left = 0
        """Images that the encoder budget of this step still has room for."""
        self._chosen: tuple[list[int], int] = ([], 0)
        """What `allowed` found: images to encode, and room for others beside them."""
        self._encoded: dict[int, int] = {}
        """Images of this step, by request."""

    @property
    def encoded(self) -> int:
        """Images of the step."""
        return sum(self._encoded.values())

    def begin(self) -> None:
        """A call of the scheduler."""
        self._left = self._limits.budget // self._limits.embeddings
        self._encoded = {}

    def allowed(self, request: int, computed: int, new: int) -> int:
        """How many of a request's next tokens may run; `encode` takes the images that they need."""
        encoded: list[int] = []
        tokens = self._within(request, computed, new, encoded)
        self._chosen = encoded, self._left - len(encoded)
        return tokens

    def _within(self, request: int, computed: int, new: int, encoded: list[int]) -> int:
        images = self._limits
        each, count = images.tokens, images.count if self._counts is None else self._counts[request]
        for which in range(computed // each, min(-(-(computed + new) // each), count)):
            start = which * each
            part = images.whole and computed + new < start + each
            if part and images.unsplit and computed <= start:
                return start - computed
            if self._cache.find((request, which)):
                continue
            if (part and computed < start) or len(encoded) >= self._left or not self._cache.room(len(encoded) + 1):
                return max(start - computed, 0)
            encoded.append(which)
        return new

    def encode(self, request: int) -> None:
        """The tokens that were just allowed run."""
        encoded, left = self._chosen
        if not encoded:
            return
        for which in encoded:
            self._cache.add((request, which))
        self._left, self._encoded[request] = left, len(encoded)

    def drop(self, request: int) -> None:
        """A request ends, is preempted, or finds no blocks; what the step was to encode for it is left to others."""
        self._cache.drop(request)
        self._left += self._encoded.pop(request, 0)

    def passed(self, request: int, tokens: int) -> None:
        """Steps whose outputs are known have computed so many tokens of a prompt: images before them are not needed."""
        self._cache.drop(request, tokens // self._limits.tokens)

    def forked(self, requests: Requests | None) -> Self:
        other = copy(self)
        other._counts = _counts(requests) if requests else self._counts
        other._cache, other._encoded = self._cache.forked(), self._encoded.copy()
        return other


def _counts(requests: Requests) -> list[int] | None:
    return None if requests.images is None else requests.images.tolist()
