"""Blocks of the KV cache that are copied between the GPU and the host: what a scheduler knows of them, and when.

Copies to the GPU run one after the other, over a link that they have for themselves. A step says which of them had
ended when it was launched; the scheduler hears that with the outputs of the step. Copies to the host run beside all
else and cost nothing here: the step that computes a block of a prompt brings it there. Blocks of outputs stay on the
GPU (`offload_prompt_only`, which is vLLM's default).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from gnomon.sim.serving.caches.host import Place
from gnomon.sim.serving.caches.tiered import TieredBlocks
from gnomon.spec.serving import ServingLimits


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What the outputs of a step say."""

    ended: Sequence[int] = ()
    """Requests whose blocks are on the GPU."""
    stored: Sequence[Sequence[Place]] = ()
    """Blocks that are in the host."""


class _Load(NamedTuple):
    ready_s: float
    places: Sequence[Place]


class BlockCopies:
    """Copies of one replica, and which of them the scheduler has heard of."""

    __slots__ = ("_block_s", "_cache", "_copy_s", "_free_s", "_loads", "_told")

    def __init__(self, limits: ServingLimits, cache: TieredBlocks) -> None:
        self._block_s, self._copy_s, self._cache = limits.host_block_s, limits.host_copy_s, cache
        self._free_s = 0.0
        """When the link is free."""
        self._loads: dict[int, _Load] = {}
        self._told: set[int] = set()
        """Whose copy a step has said to have ended."""

    def __len__(self) -> int:
        """Copies to the GPU that the scheduler waits for."""
        return len(self._loads)

    def load(self, request: int, first: int, behind: int, now: float) -> None:
        """Begin to copy a request's blocks to the GPU, from one up to another."""
        ready = max(now, self._free_s) + self._copy_s + (behind - first) * self._block_s
        self._free_s = ready
        self._loads[request] = _Load(ready, self._cache.load(request, first, behind))

    def report(self, now: float, scheduled: Mapping[int, tuple[int, int]]) -> CopyReport:
        """Of a step that is launched now: of each request, the prompt tokens that are computed then, and all tokens
        that have come back."""
        ended = [one for one, load in self._loads.items() if load.ready_s <= now and one not in self._told]
        self._told.update(ended)
        stored = [self._cache.store(request, *tokens) for request, tokens in scheduled.items()]
        return CopyReport(ended, [places for places in stored if places])

    def learn(self, report: CopyReport) -> list[int]:
        """The outputs of a step are known; the requests whose blocks are there."""
        for places in report.stored:
            self._cache.stored(places)
        for request in report.ended:
            self._cache.loaded(self._loads.pop(request).places)
            self._told.discard(request)
        return list(report.ended)

    def forked(self, cache: TieredBlocks) -> Self:
        other = object.__new__(type(self))
        other._block_s, other._copy_s, other._free_s = self._block_s, self._copy_s, self._free_s
        other._cache, other._loads, other._told = cache, self._loads.copy(), self._told.copy()
        return other
