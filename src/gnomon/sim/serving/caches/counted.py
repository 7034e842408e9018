"""Blocks that are only counted: no request finds anything in the cache."""

from __future__ import annotations

from copy import copy

from gnomon.sim.serving.caches.base import NO_ROOM
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class CountedBlocks:
    """A pool of equal blocks; see `gnomon.sim.serving.caches.base.CacheModel`."""

    __slots__ = ("block", "free")

    def __init__(self, requests: Requests, limits: ServingLimits) -> None:
        self.block, self.free = limits.block_tokens, limits.kv_blocks

    def need(self, request: int, goal: int) -> int:
        return -(-goal // self.block)

    def peek(self, request: int, goal: int) -> int:
        return 0

    def enter(self, request: int, goal: int, budget: int) -> int:
        block = self.block
        if -(-goal // block) > self.free:
            return NO_ROOM
        self.free -= -(-(goal if goal < budget else budget) // block)
        return 0

    def take(self, blocks: int) -> None:
        self.free -= blocks

    def extend(self, request: int, tokens: int) -> None:
        pass

    def leave(self, request: int, tokens: int, known: int) -> None:
        self.free += -(-tokens // self.block)

    def preempt(self, request: int, tokens: int, known: int) -> None:
        self.free += -(-tokens // self.block)

    def freed_by(self, request: int, tokens: int) -> int:
        return -(-tokens // self.block)

    def add(self, node: int) -> None:
        pass

    def forked(self, requests: Requests | None) -> CountedBlocks:
        return copy(self)
