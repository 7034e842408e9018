"""The contract of a router: which replica gets a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class RoutedRequest(NamedTuple):
    """What a router knows of a request."""

    number: int
    tokens: int
    """Of its prompt."""
    path: Sequence[tuple[int, int]]
    """The nodes of its prefix, the longest first, and the tokens up to the end of each."""
    answer: int = 0
    """Tokens of its answer, for routers that go by a predicted one."""


class ReplicaLoad:
    """What a router knows of a replica."""

    __slots__ = ("kv_share", "unfinished", "weight")

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight
        """How much faster it is than others."""
        self.unfinished = 0
        """Requests that were sent to it and have not got their last token."""
        self.kv_share = 0.0
        """Of its cache blocks, those that are held."""


class Router(Protocol):
    """Pure decisions, but for what it remembers of its own: the same requests and loads give the same replicas."""

    load_aware: bool
    """Whether it looks at the loads; one that does not sees none."""

    def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int: ...
