"""The contract of a KV cache: blocks, who holds them, and what prompts find in it."""

from __future__ import annotations

from typing import Protocol

from gnomon.spec.workload import Requests

NO_ROOM = -1


class CacheModel(Protocol):
    """The blocks of one replica. It knows tokens and requests by their index, not time.

    Decodes that cross into a new block `take` it without saying whose it is: what a sequence holds follows from its
    tokens, which `leave` is told.
    """

    block: int
    """Tokens of a block."""
    free: int
    """Blocks that can be taken now, with those whose content would be evicted."""

    def need(self, request: int, goal: int) -> int:
        """Blocks that must be free for a request to come in with so many tokens to compute."""

    def peek(self, request: int, goal: int) -> int:
        """Tokens that a request would find, of so many to compute."""

    def enter(self, request: int, goal: int, budget: int) -> int:
        """Let a request in: blocks for the first tokens of `goal`, as many as the budget has after those that are
        found in the cache. Returns how many are found, or NO_ROOM where `need` exceeds `free`."""

    def take(self, blocks: int) -> None:
        """Blocks for sequences that grow."""

    def extend(self, request: int, tokens: int) -> None:
        """The prompt of a request is computed up to here; its blocks were taken."""

    def leave(self, request: int, tokens: int, known: int) -> None:
        """A request that holds so many tokens gives its blocks back; others may find the first `known` of them."""

    def preempt(self, request: int, tokens: int, known: int) -> None:
        """The same of a request that comes in again."""

    def freed_by(self, request: int, tokens: int) -> int:
        """Blocks that are free once a request has left, at least, if nobody else leaves."""

    def add(self, node: int) -> None:
        """One more request that may come in, and the node of its prefix (`spec.workload.Prefixes`)."""

    def forked(self, requests: Requests | None) -> CacheModel:
        """A copy as it stands now, to go on by itself with requests of which the first are those known so far."""
