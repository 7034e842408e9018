"""The headline figures of an answer, which its text, its page and its `repr` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Headline:
    """What it is, its value with its unit, and its interval in brackets where it has one."""

    name: str
    value: str
    band: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.value, self.band)))


def interval(estimate: Mapping[str, Any] | None, show: Callable[[float], str], scale: float = 1.0) -> str:
    """`(3.1 to 3.9, 90%)` of an estimate times a scale; nothing of an exact number or of none."""
    if not estimate or estimate["low"] == estimate["high"]:
        return ""
    return f"({show(float(estimate['low']) * scale)} to {show(float(estimate['high']) * scale)}, 90%)"
