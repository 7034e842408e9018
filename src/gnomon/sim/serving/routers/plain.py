"""Routers that look at nothing: random, round-robin, and either by weights."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from gnomon.sim.serving.routers.base import ReplicaLoad, RoutedRequest

LOTS = 4096
"""Random numbers that are drawn at once."""


class RandomRouter:
    """Any replica with the same chance, as a Kubernetes Service does it."""

    load_aware = False

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.Generator(np.random.PCG64([seed, 1]))
        self._lots: list[float] = []

    def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
        return int(self._lot() * len(loads))

    def _lot(self) -> float:
        if not self._lots:
            self._lots = self._random.random(LOTS)[::-1].tolist()
        return self._lots.pop()


class WeightedRouter(RandomRouter):
    """Any replica, with a chance in proportion to its weight."""

    def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
        sums = list(accumulate(load.weight for load in loads))
        return min(bisect_right(sums, self._lot() * sums[-1]), len(loads) - 1)


class RoundRobinRouter:
    """One replica after the other."""

    load_aware = False

    def __init__(self, seed: int = 0) -> None:
        self._next = 0

    def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
        chosen = self._next % len(loads)
        self._next = chosen + 1
        return chosen
