"""Requests drawn from a description: lengths, arrivals, prefixes, sessions, adapters, priorities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnomon.spec.loads.arrivals.poisson import Poisson
from gnomon.spec.loads.base import generator
from gnomon.spec.loads.lengths.base import Lengths
from gnomon.spec.loads.popularity import pick_priorities
from gnomon.spec.loads.sessions import Turns, timed
from gnomon.spec.workload import Floats, Ints, Requests, ServingLoad
from gnomon.units import format_rate

INPUT, OUTPUT, GROUP, ADAPTER, PRIORITY = 11, 12, 13, 14, 15
"""Streams of random numbers."""


def generated(load: ServingLoad) -> Requests:
    """As many requests as the load has, in order of arrival."""
    size, most = load.requests, load.turns
    count = np.full(-(-size // most), most, np.int64)
    count[-1] = size - most * (count.size - 1)
    prefix = load.prefix
    turns = Turns(
        count=count,
        own_tokens=_tokens(load.input_tokens, size, load.seed, INPUT),
        output_tokens=_tokens(load.output_tokens, size, load.seed, OUTPUT),
        prefix_tokens=prefix.tokens if prefix else 0,
        group=prefix.pick(count.size, generator(load.seed, GROUP)) if prefix else None,
        groups=prefix.groups if prefix else 0,
    )
    made = replace(
        turns.requests(load.think_s, name_of(load)),
        adapter=np.repeat(load.adapters.pick(count.size, generator(load.seed, ADAPTER)), count)
        if load.adapters
        else None,
        priority=np.repeat(pick_priorities(load.priorities, count.size, generator(load.seed, PRIORITY)), count)
        if load.priorities
        else None,
    )
    return timed(made, _starts(load, count.size))


def name_of(load: ServingLoad) -> str:
    """What a drawn load is called."""
    when = "at once" if load.rate_per_s is None else f"at {format_rate(load.rate_per_s)}"
    return f"{load.input_tokens} in, {load.output_tokens} out, {when}"


def _tokens(given: int | Lengths | None, count: int, seed: int, stream: int) -> Ints:
    assert given is not None
    if isinstance(given, Lengths):
        return given.draw(count, generator(seed, stream))
    return np.full(count, given, np.int64)


def _starts(load: ServingLoad, sessions: int) -> Floats:
    """When sessions begin; the load's rate counts each of their turns."""
    if load.rate_per_s is None:
        return np.zeros(sessions)
    process = load.arrivals or Poisson()
    return process.times(sessions, load.rate_per_s * sessions / load.requests, load.seed)
