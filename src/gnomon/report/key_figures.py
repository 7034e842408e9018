"""Figures of answers as short texts, in the unit of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gnomon.report.text import digits
from gnomon.spec.key_figures import KeyFigure
from gnomon.units import format_bytes, format_duration, format_money

SHOWN: Mapping[str, Callable[[float], str]] = {
    "s": format_duration,
    "bytes": format_bytes,
    "usd": format_money,
    "share": lambda value: f"{value:.1%}",
    "x": lambda value: f"{value:.2f}x",
    "": digits,
}
"""By unit; any other stands behind the number."""


def as_figure(described: Mapping[str, Any]) -> KeyFigure:
    """A figure as a report tells of it."""
    return KeyFigure(
        name=described["figure"], path="", unit=described["unit"], higher_is_better=described["higher_is_better"]
    )


def number(value: Any) -> float | None:
    """The number of a figure or of its estimate; None of a text, of true or false, and of nothing."""
    value = value.get("value") if isinstance(value, Mapping) else value
    return None if isinstance(value, (bool, str)) or value is None else float(value)


def shown_figure(figure: KeyFigure, value: Any) -> str:
    """`3.52 ms`, `yes`, `2 x (H100, TP 4)`; a dash of nothing."""
    if isinstance(value, Mapping):
        value = value.get("value")
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else shown_number(figure.unit, value)


def shown_number(unit: str, value: float) -> str:
    return SHOWN[unit](value) if unit in SHOWN else f"{digits(value)} {unit}"


def shown_interval(figure: KeyFigure, value: Any) -> str:
    """`(3.1 ms to 3.9 ms, 90%)`; nothing of an exact number."""
    low, high = (value.get("low"), value.get("high")) if isinstance(value, Mapping) else (None, None)
    if low is None or high is None or low == high:
        return ""
    return f"({shown_number(figure.unit, low)} to {shown_number(figure.unit, high)}, 90%)"
