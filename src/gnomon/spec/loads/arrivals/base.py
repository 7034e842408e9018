"""What all arrival processes do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnomon.spec.loads.base import Description

if TYPE_CHECKING:
    from gnomon.spec.workload import Floats

STREAM = 10
"""Of random numbers; a Poisson process has the plain seed's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalProcess(Description):
    """How arrivals follow each other. The mean rate is the load's."""

    @property
    def cycle_s(self) -> float:
        """Seconds that a load has to last to show all that the process does; 0 where any part of it does."""
        return 0.0

    def times(self, count: int, rate_per_s: float, seed: int) -> Floats:
        """Seconds of so many arrivals, the first at zero."""
        raise NotImplementedError


def arrivals_after(gaps: Floats) -> Floats:
    """Arrivals by the seconds before each of them; the first is at zero."""
    gaps[:1] = 0.0
    return np.cumsum(gaps)
