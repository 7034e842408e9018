"""One scheduler whose batches pass through a pipeline: a request in flight is not scheduled again before it is back.

So requests that were once in a batch stay together, and each batch in flight has its own: a state of decodes that move
together for each, with one cache, one queue and one limit of sequences for all. A batch that finds no blocks preempts
the last of its own requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Self

from gnomon.sim.serving.base import Decision, Queue
from gnomon.sim.serving.caches.base import CacheModel
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.sim.serving.run import StepTotals
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class StagedPolicy:
    """Batches by their number; see `gnomon.sim.serving.base.Policy` for what it has of all of them together."""

    held_s = 0.0
    in_flight = False
    variant = 0

    def __init__(self, requests: Requests, limits: ServingLimits, cache: CacheModel) -> None:
        self._places = limits.max_sequences
        self.batches = [ChunkedPolicy(requests, limits, cache) for _ in range(limits.stages)]
        self._called = 0
        self._share()

    def _share(self) -> None:
        """What all batches have in common."""
        first = self.batches[0]
        self.cache, self.resumed, self.cached, self.loaded = first.cache, first.resumed, first.cached, first.loaded
        for batch in self.batches[1:]:
            batch.share(first)

    def add(
        self, prompt: int, output: int, node: int = -1, loaded: bool = False, adapter: int = -1, priority: int = 0
    ) -> int:
        """Engines refuse adapters and priorities beside pipelines."""
        return self.batches[0].add(prompt, output, node, loaded)

    def forked(self, requests: Requests | None) -> Self:
        other = copy(self)
        other.batches = [batch.forked(requests) for batch in self.batches]
        other._share()
        return other

    def decide_for(self, number: int, queue: Queue, now: float) -> Decision:
        """One call of the scheduler, while the requests of all other batches are in flight."""
        batch, self._called = self.batches[number], number
        batch.limit_places(self._places - sum(one.count for one in self.batches) + batch.count)
        return batch.decide(queue, now)

    @property
    def away(self) -> int:
        return len(self.resumed)

    @property
    def count(self) -> int:
        return sum(batch.count for batch in self.batches)

    @property
    def decoding(self) -> dict[int, tuple[int, int]]:
        return {request: state for batch in self.batches for request, state in batch.decoding.items()}

    @property
    def preemptions(self) -> int:
        return sum(batch.preemptions for batch in self.batches)

    @property
    def peak_blocks(self) -> int:
        return max(batch.peak_blocks for batch in self.batches)

    def ordered(self) -> Iterator[int]:
        return (request for batch in self.batches for request in batch.ordered())

    def shares(self) -> Iterator[tuple[int, int]]:
        """Of the batch that was called last."""
        return self.batches[self._called].shares()

    def totals(self) -> StepTotals:
        return StepTotals.sum([batch.totals() for batch in self.batches])
