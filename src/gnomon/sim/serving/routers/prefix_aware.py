"""A router that sends prompts where their beginning was computed, unless that replica is too busy.

The rule is that of SGLang's router (`--policy cache_aware`), with its defaults: among replicas whose load is balanced,
the one that saw the longest beginning, if that is a large enough share of the prompt; else the one with the fewest
tokens in its tree. Where loads are out of balance, the least busy one.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.sim.serving.routers.base import ReplicaLoad, RoutedRequest

CACHE_THRESHOLD = 0.3
"""Share of a prompt that must match (`--cache-threshold`)."""
BALANCE_ABS, BALANCE_REL = 64, 1.5
"""Out of balance are loads that differ by more than so many requests and by more than this factor
(`--balance-abs-threshold`, `--balance-rel-threshold`)."""


class PrefixAwareRouter:
    """See the module's text. It remembers for ever which replica it sent a beginning to last; SGLang's forgets those
    not seen for long once its tree is large."""

    load_aware = True

    def __init__(self, seed: int = 0) -> None:
        self._owner: dict[int, int] = {}
        self._sent: list[int] = []

    def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
        if not self._sent:
            self._sent = [0] * len(loads)
        chosen = self._choose(request, loads)
        for node, _ in request.path:
            self._owner[node] = chosen
        self._sent[chosen] += request.tokens
        return chosen

    def _choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
        busy = [load.unfinished / load.weight for load in loads]
        least = min(range(len(loads)), key=busy.__getitem__)
        if max(busy) - busy[least] > BALANCE_ABS and max(busy) > BALANCE_REL * busy[least]:
            return least
        for node, end in request.path:
            if node in self._owner:
                if min(end, request.tokens) > CACHE_THRESHOLD * request.tokens:
                    return self._owner[node]
                break
        return min(range(len(loads)), key=lambda at: self._sent[at] / loads[at].weight)
