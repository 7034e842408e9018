"""Chunked mixed batches whose decodes are not held up by prompts: beside decodes a step has a small piece of a prompt,
whatever the number of decodes; without any it has as many tokens as the engine's steps may."""

from __future__ import annotations

from gnomon.sim.serving.base import Decision, Queue
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class BesidePolicy(ChunkedPolicy):
    """See `gnomon.sim.serving.base.Policy`."""

    __slots__ = ("_chunk", "_most_tokens")

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel, chunk: int) -> None:
        super().__init__(requests, limits, cache)
        self._chunk, self._most_tokens = chunk, limits.max_step_tokens

    def decide(self, queue: Queue, now: float) -> Decision:
        decodes = len(self.decoding)
        self._step_tokens = min(decodes + self._chunk, self._most_tokens) if decodes else self._most_tokens
        return super().decide(queue, now)
