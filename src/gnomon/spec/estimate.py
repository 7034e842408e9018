"""A number that knows how sure it is and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 32
"""Draws an estimate carries; few enough to push through a whole search, enough for a 5 to 95% band."""


class Provenance(StrEnum):
    """Best evidence first; a sum is as good as its weakest part."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    FITTED = "fitted"
    FORMULA = "formula"

    @staticmethod
    def weakest(*kinds: Provenance) -> Provenance:
        order = list(Provenance)
        return max(kinds, key=order.index, default=Provenance.FORMULA)


def joined(sources: Iterable[str]) -> str:
    """Each source once, those of sums taken apart."""
    return "; ".join(dict.fromkeys(one for source in sources for one in source.split("; ") if one))


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A value, draws of it (empty when exact) and its provenance. Low and high bound 90% of the draws."""

    value: float
    draws: NDArray[np.float64]
    provenance: Provenance = Provenance.FORMULA
    source: str = ""

    @classmethod
    def exact(cls, value: float, source: str = "", provenance: Provenance = Provenance.FORMULA) -> Estimate:
        return cls(float(value), np.empty(0), provenance, source)

    @property
    def low(self) -> float:
        return min(self.value, float(np.quantile(self.draws, 0.05))) if self.draws.size else self.value

    @property
    def high(self) -> float:
        return max(self.value, float(np.quantile(self.draws, 0.95))) if self.draws.size else self.value

    @staticmethod
    def total(parts: Sequence[Estimate]) -> Estimate:
        """The sum of one part or more."""
        whole = parts[0]
        for part in parts[1:]:
            whole = whole + part
        return whole

    def map(self, function: Callable[[Any], Any]) -> Estimate:
        """The estimate of a function of the number; the function takes a float or an array."""
        return Estimate(float(function(self.value)), np.asarray(function(self.draws)), self.provenance, self.source)

    def __mul__(self, factor: float) -> Estimate:
        return self.map(lambda x: x * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Estimate:
        return self.map(lambda x: x / divisor)

    def __add__(self, other: Estimate) -> Estimate:
        draws = self._paired(other)
        return Estimate(
            self.value + other.value,
            draws,
            Provenance.weakest(self.provenance, other.provenance),
            joined([self.source, other.source]),
        )

    def over(self, other: Estimate) -> Estimate:
        """The ratio to another estimate; what both are off by alike does not count."""
        kind = Provenance.weakest(self.provenance, other.provenance)
        draws = self.draws / other.draws if self.draws.size and other.draws.size else np.empty(0)
        return Estimate(self.value / other.value, draws, kind, joined([self.source, other.source]))

    def _paired(self, other: Estimate) -> NDArray[np.float64]:
        if not self.draws.size and not other.draws.size:
            return self.draws
        ours, theirs = (part.draws if part.draws.size else np.array([part.value]) for part in (self, other))
        return np.asarray(ours + theirs, np.float64)

    def to_dict(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "provenance": str(self.provenance),
            "source": self.source,
        }
