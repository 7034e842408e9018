"""A router that looks at the work behind requests: tokens that a replica has before it, for its speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gnomon.sim.serving.routers.base import ReplicaLoad, RoutedRequest


class LeastWorkRouter:
    """The replica that would be done first: the work of what it has not finished and of the new request, over its
    weight; among equals the first. Work is the tokens of a prompt and, each counted `answer` times, those of its
    predicted answer. It is told how many requests are unfinished, and takes the latest to be those."""

    load_aware = True

    def __init__(self, answer: float = 0.0) -> None:
        self._answer = answer
        self._sent: list[deque[float]] = []

    def choose(self, request: RoutedRequest, loads: Sequence[ReplicaLoad]) -> int:
        while len(self._sent) < len(loads):
            self._sent.append(deque())
        for sent, load in zip(self._sent, loads, strict=False):
            while len(sent) > load.unfinished:
                sent.popleft()
        work = request.tokens + self._answer * request.answer
        chosen = min(range(len(loads)), key=lambda at: (sum(self._sent[at]) + work) / loads[at].weight)
        self._sent[chosen].append(work)
        return chosen
