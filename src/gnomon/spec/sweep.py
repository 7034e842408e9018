"""One command asked over lists of values, and the answer about all of its answers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.spec.answers import Result

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A command, the values that stay, and those that change: every combination of one step of each axis.

    An axis is a list of steps, each a mapping of names to values that change together. The last axis changes fastest.
    """

    command: str
    fixed: Values
    axes: tuple[tuple[Values, ...], ...]

    def __len__(self) -> int:
        return math.prod(map(len, self.axes))

    @property
    def swept(self) -> tuple[str, ...]:
        """Names whose values change, in order."""
        return tuple(dict.fromkeys(name for axis in self.axes for step in axis for name in step))

    def question(self, index: int) -> dict[str, Any]:
        """The names and values of one question; each is made when it is asked for."""
        steps = []
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis))
            steps.append(axis[place])
        found = dict(self.fixed)
        for step in reversed(steps):
            found |= step
        return found

    def prefix(self, index: int) -> str:
        """How the line of that question begins in a file of answers."""
        head = {"index": index, "question": {"command": self.command} | self.question(index)}
        return compact(head)[:-1] + ","

    @property
    def digest(self) -> str:
        """Another for any sweep with other questions, or the same in another order."""
        text = compact([self.command, self.fixed, self.axes])
        return hashlib.sha256(text.encode()).hexdigest()


def compact(value: Any) -> str:
    """JSON in one line, the same for the same values; what is not a number becomes null."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        plain = json.loads(json.dumps(value), parse_constant=lambda _: None)
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class SweepReport(Result):
    """What a finished sweep has come to. The answers themselves are in the file."""

    SCHEMA = "sweep"
    HIDDEN = frozenset({"found"})
    title: str
    command: str
    questions: int
    """Of this file; of a shard, those that are its own."""
    answered: int
    refused: int
    """Questions without an answer: refused, with nothing that meets them, or with a fault of Gnomon."""
    faults: int = 0
    """Of those, faults of Gnomon: the same sweep asks them again."""
    out: str
    swept: tuple[str, ...]
    figures: tuple[Mapping[str, Any], ...]
    """What the figures in `rows` are: `figure`, its name, `unit`, and whether `higher_is_better`."""
    rows: tuple[Mapping[str, Any], ...]
    """The swept values and the figures of each answer, `index` first, and whether it `fits` where that was asked; of a
    large sweep evenly thinned."""
    extremes: Mapping[str, Mapping[str, Any]]
    """By figure: the best and the worst of all answers that fit, each as its index and value."""
    errors: tuple[Mapping[str, Any], ...]
    """What questions were refused for: the message, how many, the first, and the exit code."""
    best_question: Mapping[str, Any] = field(default_factory=dict)
    """The question with the best value of the first figure, in full."""
    found: int = 0
    """Answers that were in the file before this run."""


def thinned(count: int, most: int) -> Iterator[int]:
    """At most so many places of a list, evenly from its first to its last."""
    if count <= most:
        yield from range(count)
    else:
        yield from (place * (count - 1) // (most - 1) for place in range(most))
