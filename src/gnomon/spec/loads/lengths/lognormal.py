"""Many short ones and a long tail."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnomon.errors import InputError
from gnomon.spec.loads.base import parameter
from gnomon.spec.loads.lengths.base import Lengths, whole_tokens
from gnomon.spec.workload import MAX_TOKENS

if TYPE_CHECKING:
    from gnomon.spec.workload import Ints

P99 = 2.3263478740408408
"""Standard deviations above the median that 99% of a normal distribution stay below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(Lengths):
    """`lognormal:mean=1024,cv=1`, or by two quantiles, `lognormal:p50=700,p99=8000`."""

    NAME: ClassVar[str] = "lognormal"
    mean: float = parameter("number", 1, MAX_TOKENS, 0.0)
    cv: float = parameter("number", 1e-3, 100, 0.0)
    """Standard deviation over mean."""
    p50: float = parameter("number", 1, MAX_TOKENS, 0.0)
    p99: float = parameter("number", 1, MAX_TOKENS, 0.0)
    max: int = parameter("whole", 1, MAX_TOKENS, MAX_TOKENS)
    """Longer ones are cut to it."""

    def check(self, where: str) -> None:
        by_mean, by_quantiles = bool(self.mean or self.cv), bool(self.p50 or self.p99)
        if by_mean == by_quantiles or bool(self.mean) != bool(self.cv) or bool(self.p50) != bool(self.p99):
            raise InputError("needs mean and cv, or p50 and p99", where=where, hint="Write lognormal:mean=1024,cv=1.")
        if by_quantiles and self.p99 <= self.p50:
            raise InputError(f"p99 {self.p99:g} is not above p50 {self.p50:g}", where=where)

    @property
    def mean_tokens(self) -> float:
        center, spread = self._normal
        return math.exp(center + spread**2 / 2)

    @property
    def most_tokens(self) -> int:
        return self.max

    def draw(self, count: int, draws: np.random.Generator) -> Ints:
        center, spread = self._normal
        return whole_tokens(np.exp(center + spread * draws.standard_normal(count)), self.max)

    @property
    def _normal(self) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm."""
        if self.p50:
            return math.log(self.p50), math.log(self.p99 / self.p50) / P99
        variance = math.log(1 + self.cv**2)
        return math.log(self.mean) - variance / 2, math.sqrt(variance)
