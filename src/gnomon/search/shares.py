"""What one replica sees of a load: requests are dealt to the replicas in turn, so replica j of R gets
every R-th request from the j-th on. All replicas are equal, so one (of a short trace: some) stands for all.

A drawn load goes on for ever: however many replicas there are, each simulated one gets the number of
requests asked for, so that a large fleet is judged by its steady state and not by its first seconds. A trace is
what it is: its shares get shorter with more replicas, and more of them are simulated.

All plans see the same draws, and another rate is the same draw on another clock: differences between
plans are differences of the plans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gnomon.errors import InputError
from gnomon.load import draw
from gnomon.spec import Requests, ServingLoad

STRETCHES = 4
SHORTEST = 500
"""Requests below which a stretch would be all beginning."""
MOST_DRAWN = 64
"""Replicas up to which the whole stream is drawn and dealt; beyond, one share is drawn from the same law."""


@dataclass(frozen=True, eq=False)
class Shares:
    """A load, ready to be dealt."""

    load: ServingLoad

    @cached_property
    def whole(self) -> Requests:
        """The trace; or a few requests of a drawn load, which are all alike."""
        if self.load.trace:
            return draw(self.load)
        return draw(replace(self.load, rate_per_s=1.0, requests=1))

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

    def of(self, replicas: int, count: int) -> list[Requests]:
        """Shares of some replicas, on a clock on which one request a second comes in over all replicas.

        Together they have about `count` requests. Of a longer share of a trace some stretches are taken, from calm to
        busy.
        """
        return self._trace(replicas, count) if self.load.trace else [self._drawn(replicas, count)]

    def _drawn(self, replicas: int, count: int) -> Requests:
        if replicas <= MOST_DRAWN:
            stream = draw(replace(self.load, rate_per_s=1.0, requests=count * replicas))
            return _every(stream, 0, replicas)
        # The time between every R-th arrival of a Poisson stream is a sum of R exponentials.
        gaps = np.random.Generator(np.random.PCG64(self.load.seed)).standard_gamma(replicas, count)
        gaps[0] = 0.0
        one = self.whole
        return Requests(
            np.cumsum(gaps), np.repeat(one.input_tokens, count), np.repeat(one.output_tokens, count), one.name
        )

    def _trace(self, replicas: int, count: int) -> list[Requests]:
        trace = self.whole
        own = trace.rate_per_s
        if not np.isfinite(own):
            raise InputError("all requests arrive at one moment", where=trace.name, hint="Give the load a --rate.")
        start = trace.arrival_s[0]
        at_one = Requests((trace.arrival_s - start) * own, trace.input_tokens, trace.output_tokens, trace.name)
        length = -(-len(trace) // replicas)
        dealt = min(replicas, len(trace), max(1, count // length))
        shares = [_every(at_one, first, replicas) for first in range(dealt)]
        return _stretches(shares[0], count) if length > count else shares


def at_rate(share: Requests, rate_per_s: float) -> Requests:
    return Requests(share.arrival_s / rate_per_s, share.input_tokens, share.output_tokens, share.name)


def first_part(share: Requests, part: float) -> Requests:
    """The requests that arrive first, at least one."""
    return _cut(share, slice(0, max(1, int(part * len(share)))))


def _every(stream: Requests, first: int, step: int) -> Requests:
    return _cut(stream, slice(first, None, step))


def _stretches(share: Requests, count: int) -> list[Requests]:
    """Stretches of a share, `count` requests together: evenly from its calmest (tokens a second) to its busiest."""
    size = count // STRETCHES if count >= STRETCHES * SHORTEST else count
    starts = np.arange(0, len(share) - size + 1, size)
    tokens = np.concatenate([[0], np.cumsum(share.input_tokens + share.output_tokens)])
    spans = share.arrival_s[starts + size - 1] - share.arrival_s[starts]
    pace = (tokens[starts + size] - tokens[starts]) / np.maximum(spans, 1e-9)
    ordered = starts[np.argsort(pace, kind="stable")]
    taken = count // size
    chosen = [int(ordered[(2 * place + 1) * len(ordered) // (2 * taken)]) for place in range(taken)]
    return [_cut(share, slice(start, start + size)) for start in chosen]


def _cut(stream: Requests, part: slice) -> Requests:
    """Some of the requests; the first of them arrives at time zero."""
    arrival = stream.arrival_s[part]
    return Requests(arrival - arrival[0], stream.input_tokens[part], stream.output_tokens[part], stream.name)
