"""Which data-parallel rank of a replica gets a request: what stands between its front end and its schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol


class Arrived(NamedTuple):
    """A request that the front end has let through."""

    at_s: float
    prompt: int


@dataclass(slots=True)
class RankLoad:
    """What a rank has to do."""

    waiting: int = 0
    running: int = 0
    prompt_tokens: int = 0
    """Of all requests that it was given and that have not ended."""

    def give(self, request: Arrived) -> None:
        self.waiting += 1
        self.prompt_tokens += request.prompt


class Balancer(Protocol):
    """Gives requests to ranks, in the order of their arrival."""

    at_calls: bool
    """Whether it gives requests to ranks when the schedulers are called, by what they do then; else when a request
    arrives, by what they did before the last call."""

    def due(self, now: float) -> bool:
        """Whether it must be asked at a call even if nothing has arrived."""

    def assign(self, requests: Sequence[Arrived], loads: Sequence[RankLoad], now: float) -> list[int]:
        """The rank of each of the first requests, as many as are given to any; `loads` gets what they add. `now` is
        when the schedulers are called, and all requests have arrived by then."""

    def forked(self) -> Balancer:
        """A copy, to go on by itself."""


@dataclass(slots=True)
class RoundRobin:
    """One rank after the other."""

    ranks: int
    at_calls: bool = False
    _next: int = 0

    def due(self, now: float) -> bool:
        return False

    def assign(self, requests: Sequence[Arrived], loads: Sequence[RankLoad], now: float) -> list[int]:
        first, self._next = self._next, (self._next + len(requests)) % self.ranks
        return [(first + place) % self.ranks for place in range(len(requests))]

    def forked(self) -> RoundRobin:
        return copy(self)


@dataclass(slots=True)
class LeastScore:
    """The rank with the least score of requests that wait and that run, as the front end knows them: by counts that
    ranks publish once in a while, and by what it has given out itself since. That nothing runs is known at once. The
    first of equal ones."""

    ranks: int
    waiting_weight: int
    interval_s: float
    """Between two publications."""
    at_calls: bool = False
    _seen: list[list[int]] = field(default_factory=list)
    """Waiting and running of each rank, as far as is known."""
    _tick: int = -1

    def due(self, now: float) -> bool:
        return self._ticks(now) > self._tick

    def assign(self, requests: Sequence[Arrived], loads: Sequence[RankLoad], now: float) -> list[int]:
        found = []
        for request in requests:
            self._publish(request.at_s, loads)
            scores = [self.waiting_weight * waiting + running for waiting, running in self._seen]
            rank = scores.index(min(scores))
            self._seen[rank][0] += 1
            loads[rank].give(request)
            found.append(rank)
        self._publish(now, loads)
        return found

    def _ticks(self, now: float) -> int:
        return int(now // self.interval_s)

    def _publish(self, now: float, loads: Sequence[RankLoad]) -> None:
        tick, idle = self._ticks(now), not any(load.waiting or load.running for load in loads)
        if tick > self._tick or idle:
            self._seen, self._tick = [[load.waiting, load.running] for load in loads], max(tick, self._tick)

    def forked(self) -> LeastScore:
        other = copy(self)
        other._seen = [counts[:] for counts in self._seen]
        return other


@dataclass(slots=True)
class FewestTokens:
    """All ranks take from one queue when they are called, while any has a place: the longest prompts first, each to the
    rank with the fewest prompt tokens, until every rank has an equal number of requests."""

    ranks: int
    places: int
    """Requests that a rank may have."""
    at_calls: bool = True

    def due(self, now: float) -> bool:
        return False

    def assign(self, requests: Sequence[Arrived], loads: Sequence[RankLoad], now: float) -> list[int]:
        active = [load.waiting + load.running for load in loads]
        taken = requests[: max(self.ranks * self.places - sum(active), 0)]
        if not taken:
            return []
        most = max(-(-(sum(active) + len(taken)) // self.ranks), max(active))
        heap = [(load.prompt_tokens, active[rank], rank) for rank, load in enumerate(loads) if active[rank] < most]
        heapify(heap)
        found = [0] * len(taken)
        for place in sorted(range(len(taken)), key=lambda one: -taken[one].prompt):
            tokens, count, rank = heappop(heap)
            if count + 1 < most:
                heappush(heap, (tokens + taken[place].prompt, count + 1, rank))
            loads[rank].give(taken[place])
            found[place] = rank
        return found

    def forked(self) -> FewestTokens:
        return self
