"""Arrivals whose rate rises and falls over a day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnomon.spec.loads.arrivals.base import STREAM, ArrivalProcess
from gnomon.spec.loads.base import generator, parameter
from gnomon.units import DAY_S

if TYPE_CHECKING:
    from gnomon.spec.workload import Floats

STEPS = 8192
"""Of a period, between which the expected arrivals are taken to be linear: of a day, milliseconds off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal(ArrivalProcess):
    """Poisson at a rate that is a sine, beginning at its mean and rising: `diurnal:ratio=4`."""

    NAME: ClassVar[str] = "diurnal"
    ratio: float = parameter("number", 1, 1e4)
    """The rate at the peak over that at the trough."""
    period: float = parameter("duration", 1, 1e8, DAY_S)

    @property
    def cycle_s(self) -> float:
        return self.period

    def times(self, count: int, rate_per_s: float, seed: int) -> Floats:
        """Arrivals of the mean rate, each moved to the time by which so many are expected."""
        gaps = generator(seed, STREAM).standard_exponential(count) / rate_per_s
        gaps[:1] = 0.0
        whole, part = np.divmod(np.cumsum(gaps), self.period)
        swing = (self.ratio - 1) / (self.ratio + 1)
        at = np.linspace(0.0, 1.0, STEPS + 1)
        expected = at + swing * (1 - np.cos(2 * np.pi * at)) / (2 * np.pi)
        found: Floats = (whole + np.interp(part / self.period, expected, at)) * self.period
        return found
