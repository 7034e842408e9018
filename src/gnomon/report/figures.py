"""The headline figures of an answer, which its text, its page and its `repr` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gnomon.spec.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Headline:
    """What it is, its value with its unit, and its interval in brackets where it has one."""

    name: str
    value: str
    band: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.value, self.band)))


def interval(estimate: Estimate | None, show: Callable[[float], str], scale: float = 1.0) -> str:
    """`(3.1 to 3.9, 90%)` of an estimate times a scale; nothing of an exact number or of none."""
    if estimate is None or estimate.low == estimate.high:
        return ""
    return f"({show(estimate.low * scale)} to {show(estimate.high * scale)}, 90%)"
