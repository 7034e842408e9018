"""Runs from which longer runs of the same stream go on, instead of from its beginning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.sim.serving.check import check
from gnomon.sim.serving.curve import Curves
from gnomon.sim.serving.replica import station_of
from gnomon.sim.serving.run import ServingRun
from gnomon.sim.serving.station import Station
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Ints, Requests


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run, and the replica as it stood when the last request arrived: nothing it did by then depends on whether
    others follow."""

    run: ServingRun
    replica: Station

    def begins(self, requests: Requests) -> bool:
        """Whether the requests are those of the run, or begin with them."""
        known, count = self.run.requests, len(self.run.requests)
        return (
            np.array_equal(known.arrival_s, requests.arrival_s[:count])
            and np.array_equal(known.input_tokens, requests.input_tokens[:count])
            and np.array_equal(known.output_tokens, requests.output_tokens[:count])
            and _shares_alike(known, requests)
            and _alike(known.adapter, requests.adapter)
            and _alike(known.priority, requests.priority)
            and _alike(known.images, requests.images)
        )


def _alike(known: Ints | None, more: Ints | None) -> bool:
    if known is None or more is None:
        return known is more
    return np.array_equal(known, more[: known.size])


def _shares_alike(known: Requests, requests: Requests) -> bool:
    if known.prefixes is None or requests.prefixes is None:
        return known.prefixes is requests.prefixes
    pairs = zip(known.prefixes.columns, requests.prefixes.columns, strict=True)
    return all(np.array_equal(some, more[: some.size]) for some, more in pairs)


def simulate_on(
    held: HeldRun | None, requests: Requests, cost: StepCost, limits: ServingLimits, curves: Curves
) -> HeldRun:
    """What `simulate` makes of the requests, to the bit. A `held` run on the same cost within the same limits goes on
    where it is one of the first of them."""
    if held is None or not held.begins(requests):
        check(requests, limits)
        replica = station_of(requests, cost, limits, curves=curves)
    elif len(held.run.requests) == len(requests):
        return held
    else:
        check(requests, limits)
        replica = held.replica.forked(requests)
    replica.run(float(requests.arrival_s[-1]))
    before_end = replica.forked()
    replica.run()
    return HeldRun(replica.result(requests), before_end)
