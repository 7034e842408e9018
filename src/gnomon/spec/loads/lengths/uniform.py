"""All lengths between two, equally often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnomon.errors import InputError
from gnomon.spec.loads.base import parameter
from gnomon.spec.loads.lengths.base import Lengths
from gnomon.spec.workload import MAX_TOKENS

if TYPE_CHECKING:
    from gnomon.spec.workload import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform(Lengths):
    """`uniform:low=100,high=500`, both included."""

    NAME: ClassVar[str] = "uniform"
    low: int = parameter("whole", 1, MAX_TOKENS)
    high: int = parameter("whole", 1, MAX_TOKENS)

    def check(self, where: str) -> None:
        if self.high < self.low:
            raise InputError(f"high {self.high} is below low {self.low}", where=where)

    @property
    def mean_tokens(self) -> float:
        return (self.low + self.high) / 2

    @property
    def most_tokens(self) -> int:
        return self.high

    def draw(self, count: int, draws: np.random.Generator) -> Ints:
        return draws.integers(self.low, self.high, count, dtype=np.int64, endpoint=True)
