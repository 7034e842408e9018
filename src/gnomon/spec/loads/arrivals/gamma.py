"""Arrivals in bursts, or more even than Poisson's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gnomon.spec.loads.arrivals.base import STREAM, ArrivalProcess, arrivals_after
from gnomon.spec.loads.base import generator, parameter

if TYPE_CHECKING:
    from gnomon.spec.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma(ArrivalProcess):
    """Gaps of a gamma distribution: `gamma:cv=3`. vLLM's `--burstiness B` is cv = 1/sqrt(B)."""

    NAME: ClassVar[str] = "gamma"
    cv: float = parameter("number", 0.01, 100)
    """Coefficient of variation of the gaps, their standard deviation over their mean; 1 is Poisson."""

    def times(self, count: int, rate_per_s: float, seed: int) -> Floats:
        shape = 1 / self.cv**2
        return arrivals_after(generator(seed, STREAM).standard_gamma(shape, count) / (shape * rate_per_s))
