"""The text of `gnomon verify`."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.text import Style, digits, next_steps, table
from gnomon.units import format_bytes, format_count, format_duration


def render(payload: Mapping[str, Any], style: Style) -> str:
    parts = payload["parts"]
    lines = [style.strong(payload["title"]), ""]
    if parts:
        errors = [abs(float(part["error"])) for part in parts if part["error"] is not None]
        lines += [*_summary(parts, style), f"  {style.strong(_verdict(errors))}", *_held(parts), ""]
        lines += [*_table(parts, style), ""] if any(not _headline(part) for part in parts) else []
    conditions = ", ".join(f"{name} {value}" for name, value in payload["conditions"].items())
    lines += [f"  measured with {conditions}", ""] if conditions else []
    return "\n".join([*lines, *next_steps("gnomon explain last", "gnomon history")])


HEADLINES = ("KV blocks", "TTFT p50", "TPOT p50", "step time", "peak memory")


def _headline(part: Mapping[str, Any]) -> bool:
    return part["what"] in HEADLINES


def _summary(parts: Any, style: Style) -> list[str]:
    """The middle request of each load, the step, and the memory: measured, predicted, error."""
    rows = [("", "measured", "predicted", "error")]
    for part in parts:
        if not _headline(part):
            continue
        name = part["what"]
        at = f" at {digits(part['rate_per_s'])}/s" if part.get("rate_per_s") else ""
        error = f"{part['error']:+.1%}" if part["error"] is not None else "-"
        rows.append((name + at, _value(part, "measured"), _value(part, "predicted"), error))
    lines = table(rows, "<>>>")
    return [style.faint(lines[0]), *lines[1:], ""] if len(rows) > 1 else []


def _verdict(errors: list[float]) -> str:
    if not errors:
        return "nothing to compare"
    return f"off by {median(errors):.1%} in the middle, {max(errors):.1%} at most, over {len(errors)} figures"


def figures(payload: Mapping[str, Any]) -> list[Headline]:
    """How far predictions are from what was measured."""
    errors = [abs(float(part["error"])) for part in payload["parts"] if part["error"] is not None]
    if not errors:
        return [Headline("compared", "nothing")]
    found = [Headline("median error", f"{median(errors):.1%}"), Headline("largest error", f"{max(errors):.1%}")]
    found.append(Headline("compared", f"{len(errors)} figures"))
    inside, banded = _inside(payload["parts"])
    return found + ([Headline("inside the 90% interval", f"{inside} of {banded}")] if banded else [])


def _inside(parts: Any) -> tuple[int, int]:
    """How many of the figures that carry a band fell inside it, and how many carry one."""
    banded = [part for part in parts if part.get("low") is not None]
    return sum(part["low"] <= part["measured"] <= part["high"] for part in banded), len(banded)


def _held(parts: Any) -> list[str]:
    inside, banded = _inside(parts)
    return [f"  the 90% bands hold {inside} of {banded}"] if banded else []


def compared(parts: Any) -> list[tuple[str, ...]]:
    """Every part, below the names of the columns."""
    rows: list[tuple[str, ...]] = [("what", "load", "measured", "predicted", "error")]
    for part in parts:
        rate = f"{digits(part['rate_per_s'])}/s" if part.get("rate_per_s") else ""
        name = part["what"] if part["what"] else part["part"]
        label = f"{part['part']}: {name}" if part["part"].endswith("alone") else name
        error = f"{part['error']:+.1%}" if part["error"] is not None else "-"
        rows.append((label, rate, _value(part, "measured"), _value(part, "predicted"), error))
    return rows


def _table(parts: Any, style: Style) -> list[str]:
    lines = table(compared(parts), "<>>>>")
    return [style.faint(lines[0]), *lines[1:]]


def _value(part: Mapping[str, Any], key: str) -> str:
    value = part[key]
    if value is None:
        return "-"
    shown = {"s": format_duration, "bytes": format_bytes}.get(part["unit"])
    return shown(value) if shown else f"{format_count(value)} {part['unit']}"
