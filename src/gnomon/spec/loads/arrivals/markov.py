"""Arrivals at two rates that take turns at random: a Markov-modulated Poisson process."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnomon.errors import InputError
from gnomon.spec.loads.arrivals.base import STREAM, ArrivalProcess
from gnomon.spec.loads.base import generator, parameter

if TYPE_CHECKING:
    from gnomon.spec.workload import Floats

MOST_CYCLES = 10_000_000
"""Changes between the rates that one load may have."""
CYCLES = 20
"""Changes to the high rate and back that show how often they come."""
MARGIN = 1.2
"""Cycles that are drawn at a time, relative to those expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Markov(ArrivalProcess):
    """Poisson at a high and at a low rate: `markov:ratio=10,high=1m,low=5m`."""

    NAME: ClassVar[str] = "markov"
    ratio: float = parameter("number", 1, 1e6)
    """The high rate over the low one."""
    high: float = parameter("duration", 1e-3, 1e8)
    """Mean seconds at the high rate; they are exponentially distributed."""
    low: float = parameter("duration", 1e-3, 1e8)

    @property
    def cycle_s(self) -> float:
        return CYCLES * (self.high + self.low)

    def times(self, count: int, rate_per_s: float, seed: int) -> Floats:
        """Unit arrivals, each at the time by which so many are expected."""
        draws = generator(seed, STREAM)
        wanted = draws.standard_exponential(count)
        wanted[:1] = 0.0
        wanted = np.cumsum(wanted)
        cycle_s = self.high + self.low
        share = self.high / cycle_s
        slow = rate_per_s / (share * self.ratio + 1 - share)
        cycles = float(wanted[-1]) / (rate_per_s * cycle_s)
        if cycles > MOST_CYCLES:
            message = f"the rate would change more than {MOST_CYCLES:,} times"
            raise InputError(message, where="--arrivals", hint="Give longer times, or fewer requests.")
        rates, means = np.array([slow * self.ratio, slow]), np.array([self.high, self.low])
        if draws.random() >= share:
            rates, means = rates[::-1], means[::-1]
        at_s, expected = np.zeros(1), np.zeros(1)
        while expected[-1] <= wanted[-1]:
            dwell = draws.standard_exponential((math.ceil(MARGIN * cycles) + 16, 2)) * means
            at_s = np.concatenate([at_s, at_s[-1] + np.cumsum(dwell.ravel())])
            expected = np.concatenate([expected, expected[-1] + np.cumsum((dwell * rates).ravel())])
        found: Floats = np.interp(wanted, expected, at_s)
        return found
