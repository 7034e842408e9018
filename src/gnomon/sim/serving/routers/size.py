"""A router that sends requests by their size: short ones to some replicas, long ones to the others."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.sim.serving.routers.base import ReplicaLoad, RoutedRequest


class SizeRouter:
    """Requests of up to so many tokens, prompt and predicted answer together, go to the replicas of the lower weights,
    a share of all (at least one), longer ones to the others; there to the fewest unfinished for the weight."""

    load_aware = True

    def __init__(self, tokens: int, share: float = 0.5) -> None:
        self._tokens, self._share = tokens, share

    def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
        order = sorted(range(len(loads)), key=lambda at: (loads[at].weight, at))
        few = min(max(round(self._share * len(loads)), 1), max(len(loads) - 1, 1))
        short = request.tokens + request.answer <= self._tokens
        group = order[:few] if short or len(loads) == 1 else order[few:]
        return min(group, key=lambda at: (loads[at].unfinished / loads[at].weight, at))
