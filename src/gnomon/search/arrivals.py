"""What the replicas of a plan see of a load, as the router in front of them spreads it.

Random assignment (the default, as a Kubernetes Service does it): every request goes to any replica with the same
chance, so one of R replicas sees each request with chance 1/R, and a Poisson stream stays one. Round-robin: replica j
gets every R-th request. Both leave replicas equal and independent of each other, so one stands for all. Other routers
look at the replicas (by least-requests a request goes to the one with the fewest unfinished ones), which are simulated
together.

A drawn load goes on for ever. A trace is taken as it is where it lasts long enough; a shorter one goes on with blocks
of itself, each from a random place, so that what is judged is a steady state and not the first seconds of an empty
engine. All plans see the same draws, and another rate is the same draw on another clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.spec import Requests, ServingLoad
from gnomon.spec.drawing import draw
from gnomon.spec.plan import LOAD_AWARE
from gnomon.spec.workload import Floats, RequestTrace

STRETCHES = 4
SHORTEST_STRETCH = 500
BLOCKS_OF_A_TRACE = 4
"""A trace goes on in blocks of this part of itself, so that bursts shorter than that stay whole."""
MOST_DRAWN = 64
"""Replicas up to which every request of the stream is drawn and routed; beyond, only those of the one that is run."""
LEAST_ROWS = 400
"""Requests of a trace that a share has at least; a shorter one goes on with blocks of the trace."""
DRAWN = 20_000
"""Requests of a drawn load that differ from each other: so many stand for all."""
MOST_OF_A_CYCLE = 2_000_000
"""Requests that are drawn at most to show a whole day, or both rates, of an arrival process."""
MOST_TOGETHER = 8
"""Replicas that are simulated together at most; of a larger fleet a cell of so many stands for all."""

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Routed:
    """What reaches the replicas that are run. A `sample` would have been another by other draws, of the load, of the
    router, or of the stretches of a trace; a trace that is run whole is what it is."""

    shares: tuple[Requests, ...]
    sample: bool
    draws: int = 0
    """How often the router dealt out a whole trace, where shares are what replicas see of one: then only its draws
    could have been other. As many shares are of each draw."""

    @property
    def requests(self) -> int:
        return sum(map(len, self.shares))

    def at_rate(self, rate_per_s: float) -> Routed:
        """The shares on the clock of a rate over all replicas."""
        return replace(self, shares=tuple(_slowed(share, 1 / rate_per_s) for share in self.shares))

    def first_part(self, part: float) -> Routed:
        """The requests of each share that arrive first, at least one."""
        cut = (_cut(share, slice(0, max(1, int(part * len(share))))) for share in self.shares)
        return replace(self, shares=tuple(cut))


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLengths:
    """A load with other lengths: what is asked of a plan beyond the load it was made for."""

    input: float = 1.0
    """Times the prompt tokens that a request shares with no other."""
    output: float = 1.0
    shared: float = 1.0
    """Of the requests that share a beginning with others, those that still do; the others have prompts as long."""

    def of(self, requests: Requests, seed: int) -> Requests:
        own, prefixes = requests.unshared_tokens, requests.prefixes
        shared = requests.input_tokens - own
        if prefixes is not None and self.shared < 1:
            kept = np.random.Generator(np.random.PCG64([seed, 5])).random(len(requests)) < self.shared
            prefixes = replace(prefixes, node=np.where(kept, prefixes.node, -1))
        return replace(
            requests,
            input_tokens=shared + whole_tokens(own, self.input),
            output_tokens=whole_tokens(requests.output_tokens, self.output),
            prefixes=prefixes,
        )


def whole_tokens(tokens: Indices, times: float) -> Indices:
    """So many times the tokens, at least one."""
    found: Indices = np.maximum(1, np.rint(times * tokens)).astype(np.int64)
    return found


@dataclass(frozen=True, eq=False)
class Arrivals:
    """A load, ready to be routed."""

    load: ServingLoad
    router: str = "random"
    trace: RequestTrace | None = None
    """What the load's trace says, where it has one."""
    lengths: OtherLengths = OtherLengths()
    asks: Callable[[Requests], Requests] | None = None
    """What techniques make of the requests."""
    routes: Callable[[int], Any] | None = None
    """What makes the router of a technique, of a seed; it may look at the replicas."""

    @cached_property
    def whole(self) -> Requests:
        """The trace, or what stands for one where drawn requests differ; else one of them, which are all alike.

        Turns of sessions are on their own here: a router may send them anywhere, and blocks of a trace cut sessions.
        """
        if not self._recorded:
            return self.lengths.of(draw(replace(self.load, rate_per_s=1.0, requests=1)), self.load.seed)
        if self.load.trace:
            found = draw(self.load, self.trace, repeat=False)
        else:
            rate = 1.0 if self.load.rate_per_s is None else self.load.rate_per_s
            cycle = math.ceil(rate * self.load.arrivals.cycle_s) if self.load.arrivals else 0
            count = max(self.load.requests, DRAWN, min(cycle, MOST_OF_A_CYCLE))
            found = draw(replace(self.load, rate_per_s=rate, requests=count))
        found = replace(found, follows=None, think_s=None)
        return self.lengths.of(self.asks(found) if self.asks else found, self.load.seed)

    @property
    def _recorded(self) -> bool:
        """Whether there are requests to be taken in their order, from a trace or drawn once."""
        return not self.load.alike or self.asks is not None

    @cached_property
    def rate_per_s(self) -> float:
        """The load's own rate; 0 where it has none."""
        if self.load.rate_per_s is not None:
            return self.load.rate_per_s
        if not self.load.trace:
            return 0.0
        own = self.whole.rate_per_s
        return own if np.isfinite(own) else 0.0

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output."""
        return int((self.whole.input_tokens + self.whole.output_tokens).max())

    @property
    def load_aware(self) -> bool:
        """Whether the router looks at the replicas."""
        return self.routes is not None or self.router in LOAD_AWARE

    def together(self, replicas: int) -> int:
        """Replicas that have to be simulated with each other, because the router looks at them."""
        return min(replicas, MOST_TOGETHER) if self.load_aware else 1

    def ways(self, replicas: int) -> float:
        """Into how many streams the load is split, each run by itself."""
        return replicas / self.together(replicas)

    def of(self, replicas: int, count: int, span: float = 0.0) -> Routed:
        """What one replica sees (or `together` of them), on a clock of one request per second over all
        replicas: at least `count` requests in all, and each share as long as `span` on that clock.

        Several shares are parts of one trace: of several replicas, by as many draws of the router as it takes, or
        stretches from its calm to its busy ones.
        """
        ways = self.ways(replicas)
        if self._recorded and len(self.whole) >= max(span, LEAST_ROWS * ways):
            shares = tuple(self._parts(ways, count, span))
            drawn = self._drawn(ways)
            part = sum(map(len, shares)) < len(self.whole)
            dealt = drawn and self.load.trace and self._share_length(ways) <= count
            draws = max(1, len(shares) // int(ways)) if dealt else 0
            return Routed(shares, sample=drawn or part or not self.load.trace, draws=draws)
        return Routed((self._goes_on(ways, max(count, math.ceil(span / ways))),), sample=True)

    def _parts(self, ways: float, count: int, span: float) -> list[Requests]:
        """Shares of a trace that lasts long enough, in its own order."""
        total, length = len(self.whole), self._share_length(ways)
        if length > count:
            return _stretches(self._share(ways, 0, total), count, math.ceil(span / ways))
        draws = max(1, round(count / (length * int(ways)))) if self.load.trace and self._drawn(ways) else 1
        wanted = min(int(ways), max(1, count // length)) if draws == 1 else draws * int(ways)
        return [self._share(ways, first, total) for first in range(wanted)]

    def _drawn(self, ways: float) -> bool:
        """Whether the router draws lots."""
        return self.router != "round-robin" and ways > 1

    def _share_length(self, ways: float) -> int:
        return max(1, round(len(self.whole) / ways))

    def _share(self, ways: float, replica: int, total: int) -> Requests:
        """The requests of one replica among the first `total` of the stream; those beyond the last replica are of
        another draw of the router."""
        if self.router == "round-robin":
            return self._at(np.arange(replica, total, int(ways)))
        again, own = divmod(replica, int(ways))
        return self._at(np.flatnonzero((self._lots(total, again) * ways).astype(np.int64) == own))

    def _goes_on(self, ways: float, count: int) -> Requests:
        """So many requests of one replica, beyond the end of the trace where it has one."""
        if self.router == "round-robin" and ways > 1:
            return self._every(int(ways), count)
        if ways == 1 or not self._recorded:  # a Poisson stream that is thinned at random stays one, only slower
            return _slowed(self._at(np.arange(count)), ways)
        if ways > MOST_DRAWN:
            skips = np.random.Generator(np.random.PCG64([self.load.seed, 2])).geometric(1 / ways, count)
            return self._at(np.cumsum(skips) - 1) if ways < len(self.whole) else self._scattered(skips)
        chosen = np.flatnonzero(self._lots(math.ceil(1.1 * count * ways + 20 * ways)) < 1 / ways)
        return self._at(chosen[:count])

    def _scattered(self, skips: Indices) -> Requests:
        """Requests so far apart that no two are of one block: any of the trace, at the mean distance of as many."""
        at = np.random.Generator(np.random.PCG64([self.load.seed, 4])).integers(len(self.whole), size=skips.size)
        arrival = np.cumsum(skips).astype(np.float64)
        return replace(self.whole.take(at), arrival_s=arrival - arrival[0])

    def _every(self, replicas: int, count: int) -> Requests:
        """Every R-th request: of a Poisson stream the gaps are sums of R exponentials."""
        if self._recorded and replicas >= MOST_DRAWN and replicas >= len(self.whole):
            return self._scattered(np.full(count, replicas))
        if self._recorded or replicas <= MOST_DRAWN:
            return self._at(np.arange(count) * replicas)
        gaps = np.random.Generator(np.random.PCG64(self.load.seed)).standard_gamma(replicas, count)
        gaps[0] = 0.0
        return self._equal(np.cumsum(gaps))

    def _lots(self, total: int, again: int = 0) -> Floats:
        """A number from 0 to 1 for each request, by which it is routed; a longer stream begins with the same ones, and
        what one of many replicas gets, one of fewer gets as well. Others where the router draws `again`."""
        seed = [self.load.seed, 1, again] if again else [self.load.seed, 1]
        return np.random.Generator(np.random.PCG64(seed)).random(total)

    def _at(self, places: Indices) -> Requests:
        """The requests at some places of the endless stream; the first of them arrives at time zero."""
        if not places.size or (self._recorded and len(self.whole) > 1):
            return _cut(self._beyond(places), slice(None))
        stream = draw(replace(self.load, rate_per_s=1.0, requests=int(places[-1]) + 1), self.trace)
        return _cut(self._equal(stream.arrival_s[places]), slice(None))

    def _equal(self, arrival: Floats) -> Requests:
        return replace(self.whole.take(np.zeros(arrival.size, np.int64)), arrival_s=arrival)

    def _beyond(self, places: Indices) -> Requests:
        """The trace, then blocks of it from random places, the end joined to the beginning by a mean gap."""
        trace, size = self.whole, len(self.whole)
        own = trace.rate_per_s
        if not np.isfinite(own):
            raise InputError("all requests arrive at one moment", where=trace.name, hint="Give the load a --rate.")
        clock = (trace.arrival_s - trace.arrival_s[0]) * own
        clock = np.concatenate([clock, clock + size])
        block = max(1, size // BLOCKS_OF_A_TRACE)
        later = np.maximum(places - size, 0)
        number, offset = later // block, later % block
        blocks = int(number.max(initial=0)) + 1
        starts = np.random.Generator(np.random.PCG64([self.load.seed, 3])).integers(size, size=blocks)
        began = size + np.concatenate([[0.0], np.cumsum(clock[starts + block] - clock[starts])])
        inside = starts[number] + offset
        first = places < size
        at = np.where(first, places, inside % size)
        arrival = np.where(first, clock[at], began[number] + clock[inside] - clock[starts[number]])
        return replace(trace.take(at), arrival_s=arrival)


def _slowed(stream: Requests, factor: float) -> Requests:
    return replace(stream, arrival_s=stream.arrival_s * factor)


def _stretches(share: Requests, count: int, least: int) -> list[Requests]:
    """Stretches of a share, about `count` requests together: evenly from its calmest (tokens per second) to its
    busiest, none shorter than `least`."""
    size = max(count // STRETCHES if count >= STRETCHES * SHORTEST_STRETCH else count, least)
    size = min(size, len(share))
    starts = np.arange(0, len(share) - size + 1, size)
    tokens = np.concatenate([[0], np.cumsum(share.input_tokens + share.output_tokens)])
    spans = share.arrival_s[starts + size - 1] - share.arrival_s[starts]
    load = (tokens[starts + size] - tokens[starts]) / np.maximum(spans, 1e-9)
    ordered = starts[np.argsort(load, kind="stable")]
    taken = min(max(1, count // size), len(ordered))
    chosen = [int(ordered[(2 * place + 1) * len(ordered) // (2 * taken)]) for place in range(taken)]
    return [_cut(share, slice(start, start + size)) for start in chosen]


def _cut(stream: Requests, part: slice) -> Requests:
    """Some of the requests; the first of them arrives at time zero."""
    taken = stream if part == slice(None) else stream.take(np.arange(len(stream))[part])
    start = taken.arrival_s[0] if len(taken) else 0.0
    return replace(taken, arrival_s=taken.arrival_s - start)
