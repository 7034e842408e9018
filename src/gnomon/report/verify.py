"""The text of `gnomon verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.text import Style, digits, headed, next_steps
from gnomon.spec.answers import Verified
from gnomon.units import format_bytes, format_count, format_duration

Part = Mapping[str, Any]
"""A `Comparison`."""
HEADLINES = ("KV blocks", "TTFT p50", "TPOT p50", "step time", "peak memory")


def render(answer: Verified, style: Style) -> str:
    parts = answer.parts
    lines = [style.strong(answer.title), ""]
    if parts:
        errors = [abs(part["error"]) for part in parts if part["error"] is not None]
        lines += [*_summary(parts, style), f"  {style.strong(_verdict(errors))}", *_held(parts), ""]
        lines += [*headed(compared(parts), "<>>>>", style), ""] if any(not _headline(part) for part in parts) else []
    conditions = ", ".join(f"{name} {value}" for name, value in answer.conditions.items())
    lines += [f"  measured with {conditions}", ""] if conditions else []
    return "\n".join([*lines, *next_steps("gnomon explain last", "gnomon history")])


def _headline(part: Part) -> bool:
    return part["what"] in HEADLINES


def _summary(parts: Sequence[Part], style: Style) -> list[str]:
    """The median request of each load, the step, and the memory: measured, predicted, error."""
    rows = [("", "measured", "predicted", "error")]
    for part in filter(_headline, parts):
        at = f" at {digits(part['rate_per_s'])}/s" if part.get("rate_per_s") else ""
        rows.append((part["what"] + at, *_figures(part)))
    return [*headed(rows, "<>>>", style), ""] if len(rows) > 1 else []


def _figures(part: Part) -> tuple[str, str, str]:
    """Measured, predicted, error."""
    error = f"{part['error']:+.1%}" if part["error"] is not None else "-"
    return value_word(part, "measured"), value_word(part, "predicted"), error


def _verdict(errors: list[float]) -> str:
    if not errors:
        return "nothing to compare"
    return f"median error {median(errors):.1%}, largest {max(errors):.1%}, over {len(errors)} figures"


def figures(answer: Verified) -> list[Headline]:
    """How far predictions are from what was measured."""
    errors = [abs(part["error"]) for part in answer.parts if part["error"] is not None]
    if not errors:
        return [Headline("compared", "nothing")]
    found = [Headline("median error", f"{median(errors):.1%}"), Headline("largest error", f"{max(errors):.1%}")]
    found.append(Headline("compared", f"{len(errors)} figures"))
    inside, banded = _inside(answer.parts)
    return found + ([Headline("inside the 90% interval", f"{inside} of {banded}")] if banded else [])


def _inside(parts: Sequence[Part]) -> tuple[int, int]:
    """How many of the figures that carry a band fell inside it, and how many carry one."""
    banded = [part for part in parts if None not in (part.get("low"), part.get("high"))]
    return sum(part["low"] <= part["measured"] <= part["high"] for part in banded), len(banded)


def _held(parts: Sequence[Part]) -> list[str]:
    inside, banded = _inside(parts)
    return [f"  {inside} of {banded} inside the 90% interval"] if banded else []


def compared(parts: Sequence[Part]) -> list[tuple[str, ...]]:
    """Every part, below the names of the columns."""
    rows: list[tuple[str, ...]] = [("what", "load", "measured", "predicted", "error")]
    for part in parts:
        rate = f"{digits(part['rate_per_s'])}/s" if part.get("rate_per_s") else ""
        name = part["what"] if part["what"] else part["part"]
        label = f"{part['part']}: {name}" if part["part"].endswith("alone") else name
        rows.append((label, rate, *_figures(part)))
    return rows


def value_word(part: Part, key: str) -> str:
    value = part[key]
    if value is None:
        return "-"
    shown = {"s": format_duration, "bytes": format_bytes}.get(part["unit"])
    return shown(value) if shown else f"{format_count(value)} {part['unit']}"
