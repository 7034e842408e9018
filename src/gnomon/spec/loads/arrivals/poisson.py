"""Arrivals that know nothing of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnomon.spec.loads.arrivals.base import ArrivalProcess, arrivals_after

if TYPE_CHECKING:
    from gnomon.spec.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(ArrivalProcess):
    """Exponential gaps: `poisson`."""

    NAME: ClassVar[str] = "poisson"

    def times(self, count: int, rate_per_s: float, seed: int) -> Floats:
        return arrivals_after(np.random.Generator(np.random.PCG64(seed)).standard_exponential(count) / rate_per_s)
