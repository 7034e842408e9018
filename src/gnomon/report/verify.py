"""The text of `gnomon verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.text import Style, digits, next_steps, table
from gnomon.units import format_duration


def render(payload: Mapping[str, Any], style: Style) -> str:
    lines = [style.strong(payload["title"]), "", *_parts(payload["parts"], style), ""]
    conditions = ", ".join(f"{name} {value}" for name, value in payload["conditions"].items() if _short(value))
    lines += [f"  measured with {conditions}", ""] if conditions else []
    return "\n".join([*lines, *next_steps("gnomon explain last", "gnomon history")])


def _parts(parts: Sequence[Mapping[str, Any]], style: Style) -> list[str]:
    """One line a part, one column a figure, in the order the parts have them."""
    names = list(dict.fromkeys(name for part in parts for name in part if name != "unit"))
    if not names:
        return ["  nothing was measured"]
    rows = [tuple(name.replace("_", " ") for name in names)]
    rows += [tuple(_cell(name, part.get(name), part) for name in names) for part in parts]
    numeric = [any(isinstance(part.get(name), (int, float)) for part in parts) for name in names]
    lines = table(rows, "".join(">" if number else "<" for number in numeric))
    return [style.faint(lines[0]), *lines[1:]]


def _cell(name: str, value: Any, part: Mapping[str, Any]) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    if "error" in name:
        return f"{value:+.1%}"
    seconds = name.endswith("_s") or (part.get("unit") == "s" and isinstance(value, float))
    return format_duration(value) if seconds else digits(value)


def _short(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and len(str(value)) < 60
