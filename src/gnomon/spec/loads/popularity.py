"""Who gets how many of the requests: groups of prefixes, adapters, priorities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnomon.errors import InputError
from gnomon.spec.loads.base import Description, pairs_of, parameter, plain_number
from gnomon.spec.workload import MAX_TOKENS
from gnomon.units import parse_count

if TYPE_CHECKING:
    from gnomon.spec.workload import Floats, Ints

MOST_GROUPS = 10_000_000
MOST_ADAPTERS = 1_000_000
STEEPEST = 10.0
HIGHEST_PRIORITY = 1_000_000
EXACT = 1e-6
"""How far the shares of priorities may be from 1 together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefix(Description):
    """Prompts begin with one of some texts: `groups=8,tokens=2048`. The tokens come before those of `--input`."""

    groups: int = parameter("whole", 1, MOST_GROUPS)
    tokens: int = parameter("whole", 1, MAX_TOKENS)
    zipf: float = parameter("number", 0, STEEPEST, 0.0)
    """The k-th most popular group has a share in proportion to 1/k^zipf; all have the same at 0."""

    def pick(self, count: int, draws: np.random.Generator) -> Ints:
        """The group of so many prompts."""
        return picked(zipf_shares(self.groups, self.zipf), count, draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters(Description):
    """LoRA adapters that requests ask for: `count=32,zipf=1`, or no more than `32`."""

    count: int = parameter("whole", 1, MOST_ADAPTERS)
    zipf: float = parameter("number", 0, STEEPEST, 0.0)
    """As for prefixes."""

    @classmethod
    def read(cls, text: str, where: str) -> Adapters:
        first, comma, rest = text.strip().partition(",")
        plain = f"count={first}{comma}{rest}" if first and "=" not in first else text
        # Without arguments `super` does not find the class that slots make anew.
        return super(Adapters, cls).read(plain, where)

    @property
    def text(self) -> str:
        return f"{self.count}{f',zipf={plain_number(self.zipf)}' if self.zipf else ''}"

    def pick(self, count: int, draws: np.random.Generator) -> Ints:
        """The adapter of so many requests."""
        return picked(zipf_shares(self.count, self.zipf), count, draws)


Priorities = tuple[tuple[int, float], ...]
"""Levels, of which lower ones go first, and the share of requests that each has."""


def priorities_of(text: str, where: str = "--priorities") -> Priorities:
    """The shares that a text describes: `0=0.9,1=0.1`, also `0=90%,1=10%`."""
    found: dict[int, float] = {}
    for key, value in pairs_of(text, where):
        level, share = _level(key, where), _share(value, where)
        if level in found:
            raise InputError(f"the priority {level} is given twice", where=where)
        found[level] = share
    if not found or abs(sum(found.values()) - 1) > EXACT:
        hint = "Write 0=0.9,1=0.1: nine of ten requests have priority 0, which goes first."
        raise InputError(f"the shares add up to {sum(found.values()):g}, not to 1", where=where, hint=hint)
    return tuple(sorted(found.items()))


def priorities_text(priorities: Priorities) -> str:
    """As it is written; reading it gives the same shares."""
    return ",".join(f"{level}={plain_number(share)}" for level, share in priorities)


def pick_priorities(priorities: Priorities, count: int, draws: np.random.Generator) -> Ints:
    """The priority of so many requests."""
    levels = np.array([level for level, _ in priorities], np.int64)
    return levels[picked(np.array([share for _, share in priorities]), count, draws)]


def zipf_shares(groups: int, exponent: float) -> Floats:
    """What each of some groups gets, the most popular first; together 1."""
    weights: Floats = np.arange(1, groups + 1, dtype=np.float64) ** -exponent
    weights /= weights.sum()
    return weights


def picked(shares: Floats, count: int, draws: np.random.Generator) -> Ints:
    """So many places among the shares."""
    upto = np.cumsum(shares)
    found: Ints = np.searchsorted(upto, draws.random(count) * upto[-1], side="right").astype(np.int64)
    return np.minimum(found, upto.size - 1)


def _level(text: str, where: str) -> int:
    try:
        level = int(text)
    except ValueError:
        raise InputError(f"'{text}' is not a whole number", where=where) from None
    if abs(level) > HIGHEST_PRIORITY:
        raise InputError(f"'{text}' is not between -{HIGHEST_PRIORITY:,} and {HIGHEST_PRIORITY:,}", where=where)
    return level


def _share(text: str, where: str) -> float:
    share = parse_count(text.removesuffix("%"), where) / (100 if text.endswith("%") else 1)
    if not 0 < share <= 1:
        raise InputError(f"'{text}' is not a share above 0 and up to 1", where=where)
    return share
