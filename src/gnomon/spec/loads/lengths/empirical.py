"""Lengths like those in a file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gnomon.errors import InputError
from gnomon.spec.loads.lengths.base import Lengths

if TYPE_CHECKING:
    from gnomon.spec.workload import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical(Lengths):
    """`file:lengths.txt`, one number of tokens per line; each is as likely as any other."""

    NAME: ClassVar[str] = "file"
    path: str
    values: Ints | None = field(default=None, compare=False, repr=False)
    """What the file says; none before it was read."""

    @classmethod
    def read(cls, text: str, where: str) -> Empirical:
        if not text.strip():
            raise InputError("has no name of a file", where=where, hint="Write file:lengths.txt.")
        return cls(path=text.strip())

    @property
    def text(self) -> str:
        return f"{self.NAME}:{self.path}"

    @property
    def mean_tokens(self) -> float:
        return math.nan if self.values is None else float(self.values.mean())

    def draw(self, count: int, draws: np.random.Generator) -> Ints:
        return self._known[draws.integers(self._known.size, size=count)]

    @property
    def _known(self) -> Ints:
        assert self.values is not None, "the file is read before lengths are drawn"
        return self.values
