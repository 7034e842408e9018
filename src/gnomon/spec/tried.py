"""What trying an idea answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.spec import Estimate
from gnomon.spec.answers import Result

MODEL = "--model"
"""The flag of the model, which other commands take without one."""
NO_CHANGE = 0.005
"""A gain below this is none."""
NONE = "No benefit here"
"""How a verdict begins that says so."""


def times(gain: Estimate) -> str:
    """`2.24x faster (1.90 to 2.60, 90%)`, `1.06x slower` or `equal`."""
    if abs(gain.value - 1) <= NO_CHANGE:
        return "equal"
    low, value, high = gain.low, gain.value, gain.high
    word = "faster"
    if value < 1:
        low, value, high, word = 1 / high, 1 / value, 1 / low, "slower"
    return f"{value:.2f}x {word}" + (f" ({low:.2f} to {high:.2f}, 90%)" if low < high else "")


@dataclass(frozen=True, kw_only=True)
class Tried(Result):
    """An idea against doing without it. `gain` is how many times faster a step is, with its interval; it is null where
    one of the two does not run, which is then the answer. `plain` and `applied` are null where that side does not fit
    or does not run."""

    SCHEMA = "try"
    HIDDEN = frozenset({"reports"})
    title: str
    paper: str
    technique: str
    idea: str
    against: str
    plain: Mapping[str, Any] | None
    applied: Mapping[str, Any] | None
    gain: Estimate | None
    memory_saved_bytes: float | None
    note: str
    helps: bool
    verdict: str
    missing: Mapping[str, str] = field(default_factory=dict)
    """Of `plain` and `applied`, why one has no figures, in a few words."""
    assumed: tuple[str, ...] = ()
    """What the technique takes the machine to have that nobody has told."""
    inputs: Mapping[str, Any]
    reports: tuple[Any, Any] = (None, None)
