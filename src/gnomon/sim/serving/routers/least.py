"""Routers that look at how busy replicas are: fewest unfinished requests, least KV cache in use."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.sim.serving.routers.base import ReplicaLoad, RoutedRequest


class LeastRequestsRouter:
    """The replica with the fewest unfinished requests for its weight; among equals, round-robin."""

    load_aware = True

    def __init__(self, seed: int = 0) -> None:
        self._count = 0

    def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
        first = self._count % len(loads)
        self._count += 1
        return min(
            range(len(loads)), key=lambda at: (loads[at].unfinished / loads[at].weight, (at - first) % len(loads))
        )


class LeastKvRouter:
    """The replica with the smallest share of its KV cache in use; among equals, the fewest unfinished requests."""

    load_aware = True

    def __init__(self, seed: int = 0) -> None:
        self._count = 0

    def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
        first = self._count % len(loads)
        self._count += 1
        return min(
            range(len(loads)),
            key=lambda at: (loads[at].kv_share, loads[at].unfinished / loads[at].weight, (at - first) % len(loads)),
        )
