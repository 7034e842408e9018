"""Markdown tables that also line up as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOTHING = "-"
HEADS = ("rows", "mean error", "median", "p90", "bias", "worst", "in band", "half-width")
"""Of `scores`."""


def grid(rows: Sequence[Sequence[str]], align: str) -> str:
    """A Markdown table whose columns also line up as plain text."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(align))]
    columns = list(zip(align, widths, strict=True))
    ruler = ["-" * width if side == "<" else "-" * (width - 1) + ":" for side, width in columns]
    lines = [[f"{cell:{side}{width}}" for cell, (side, width) in zip(row, columns, strict=True)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], ruler, *lines[1:]])


def scores(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The figures of a summary; what it does not have is a dash."""
    names = ("mean_error", "median_error", "p90_error")
    held = share(found["inside"], found["banded"]) if found.get("banded") else NOTHING
    width = found.get("half_width")
    return (
        f"{found['rows']:,}",
        *(f"{found[name]:.1%}" if name in found else NOTHING for name in names),
        *(f"{found[name]:+.1%}" if name in found else NOTHING for name in ("bias", "worst")),
        held,
        NOTHING if width is None else f"{width:.1%}",
    )


def share(inside: int, banded: int) -> str:
    """How many of a few, or which part of many."""
    return f"{inside} of {banded}" if banded < 100 else f"{inside / banded:.0%}"


def scored(names: Sequence[str], rows: Iterable[Mapping[str, Any]], heads: Sequence[str] = ()) -> str:
    """A table of summaries: what they are of, then their figures."""
    lines = [(*(heads or names), *HEADS)]
    lines += [(*(str(row[name]) for name in names), *scores(row)) for row in rows]
    return grid(lines, "<" * len(names) + ">" * len(HEADS))


def left_out(rows: Sequence[Mapping[str, Any]], what: str) -> str:
    """What could not be compared, by reason."""
    lines = [(what, "rows", "why")] + [(row["source"], f"{row['rows']:,}", row["why"]) for row in rows]
    return grid(lines, "<><")
