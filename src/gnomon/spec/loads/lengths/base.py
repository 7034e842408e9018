"""What all distributions of lengths do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnomon.spec.loads.base import Description

if TYPE_CHECKING:
    from gnomon.spec.workload import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(Description):
    """Tokens of requests that differ."""

    @property
    def mean_tokens(self) -> float:
        """Tokens, before they are rounded; not a number where they are not known yet."""
        raise NotImplementedError

    @property
    def most_tokens(self) -> int:
        """Of the longest there may be."""
        raise NotImplementedError

    @property
    def every(self) -> Ints | None:
        """All there are, each as often as it comes; none of a formula."""
        return None

    @property
    def identity(self) -> str:
        """What tells lengths apart, beyond what was written."""
        return self.text

    def draw(self, count: int, draws: np.random.Generator) -> Ints:
        """So many lengths, each at least one token."""
        raise NotImplementedError


def whole_tokens(lengths: Floats, most: int) -> Ints:
    """Rounded, from 1 to `most`."""
    return np.clip(np.rint(lengths), 1, most).astype(np.int64)
