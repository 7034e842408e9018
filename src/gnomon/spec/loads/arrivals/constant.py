"""Arrivals at equal distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnomon.spec.loads.arrivals.base import ArrivalProcess

if TYPE_CHECKING:
    from gnomon.spec.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(ArrivalProcess):
    """A fixed interval: `constant`."""

    NAME: ClassVar[str] = "constant"

    def times(self, count: int, rate_per_s: float, seed: int) -> Floats:
        return np.arange(count) / rate_per_s
