"""Lengths like those in a file."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnomon.errors import InputError
from gnomon.spec.loads.lengths.base import Lengths

if TYPE_CHECKING:
    from gnomon.spec.workload import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical(Lengths):
    """`file:lengths.txt`, one number of tokens per line, or a histogram of them; each is as likely as it is often."""

    NAME: ClassVar[str] = "file"
    path: str
    values: Ints | None = field(default=None, compare=False, repr=False)
    """What the file says; none before it was read."""
    counts: Ints | None = field(default=None, compare=False, repr=False)
    """How often each comes, of a histogram."""

    @classmethod
    def read(cls, text: str, where: str) -> Empirical:
        if not text.strip():
            raise InputError("has no name of a file", where=where, hint="Write file:lengths.txt.")
        return cls(path=text.strip())

    @property
    def text(self) -> str:
        return f"{self.NAME}:{self.path}"

    @property
    def identity(self) -> str:
        held = [array.tobytes() for array in (self.values, self.counts) if array is not None]
        return f"{self.text} {zlib.crc32(b''.join(held)):08x}"

    @property
    def mean_tokens(self) -> float:
        return math.nan if self.values is None else float(np.average(self.values, weights=self.counts))

    @property
    def most_tokens(self) -> int:
        return int(self._known.max())

    @property
    def every(self) -> Ints | None:
        return self._known if self.counts is None else None

    def draw(self, count: int, draws: np.random.Generator) -> Ints:
        if self.counts is None:
            return self._known[draws.integers(self._known.size, size=count)]
        below = np.cumsum(self.counts)
        return self._known[np.searchsorted(below, draws.integers(below[-1], size=count), side="right")]

    @property
    def _known(self) -> Ints:
        assert self.values is not None, "the file is read before lengths are drawn"
        return self.values
