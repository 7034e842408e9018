"""The text of `gnomon compare`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnomon.errors import shortened
from gnomon.report.figures import Headline
from gnomon.report.key_figures import as_figure, shown_figure, shown_interval
from gnomon.report.sweep import value_word
from gnomon.report.text import INDENT, Style, headed, next_steps, words
from gnomon.spec.side_by_side import SideBySide

Payload = Mapping[str, Any]
_POOL = re.compile(r"pools\.(\d+)\.(?:.*\.)?([^.]+)$")
"""A field of a pool: its place, and the last part of its name."""
LONGEST = 28
"""Letters of a plan's name at the head of a column."""
SAME = 0.0005
"""Ratios that differ from one by less are shown as equal."""


def render(answer: SideBySide, style: Style) -> str:
    lines = [style.strong(answer.title), *([load_words(answer.on)] if answer.on else []), ""]
    names = heads(answer)
    rows = figure_rows(answer)
    lines += [*headed(rows, "<" + ">" * (len(rows[0]) - 1), style), ""]
    lines += [*(f"{INDENT}{line}" for line in verdicts(answer)), ""]
    if answer.differs:
        rows = [("what differs", *names), *different(answer)]
        lines += headed(rows, "<" * (1 + len(names)), style)
    else:
        lines += [f"{INDENT}nothing differs"]
    return "\n".join([*lines, "", *next_steps(*_next(answer))])


def heads(answer: SideBySide) -> list[str]:
    return [shortened(name, LONGEST) for name in answer.names]


def load_words(on: Payload) -> str:
    """`under rate_per_s 8, input_tokens 1024`."""
    return "under " + ", ".join(f"{name.replace('_', ' ')} {value_word(value)}" for name, value in on.items())


def different(answer: SideBySide) -> list[tuple[str, ...]]:
    """Fields that differ; those of a pool in one row, which names them."""
    rows: dict[str, list[list[str]]] = {}
    for row in answer.differs:
        field, values = row["field"], row["values"]
        pool = _POOL.match(field)
        cells = rows.setdefault(f"pool {pool[1]}" if pool else field, [[] for _ in values])
        for cell, value in zip(cells, values, strict=True):
            if pool is None:
                cell.append(value_word(value))
            elif value is not None:
                cell.append(f"{pool[2].replace('_', ' ')} {value_word(value)}")
    return [(field, *(", ".join(cell) or "-" for cell in cells)) for field, cells in rows.items()]


def figure_rows(answer: SideBySide) -> list[tuple[str, ...]]:
    """Figures below the names: of the first its value and interval, of the others also the ratio."""
    first, *others = heads(answer)
    rows = [("", first, "", *(cell for name in others for cell in (name, "", "ratio")))]
    for row in answer.rows:
        cells: list[str] = [row["figure"]]
        for place, (value, ratio) in enumerate(zip(row["values"], row["ratios"], strict=True)):
            cells += [shown_figure(as_figure(row), value), _edges(row, value)]
            cells += [ratio_word(ratio)] if place else []
        rows.append(tuple(cells))
    return rows


def _edges(row: Payload, value: Any) -> str:
    return shown_interval(as_figure(row), value).strip("()").removesuffix(", 90%")


def ratio_word(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return "equal" if abs(ratio - 1) < SAME else f"{ratio:.3g}x"


def figures(answer: SideBySide) -> list[Headline]:
    """The first figure of each."""
    row = answer.rows[0] if answer.rows else None
    if row is None:
        return []
    figure = as_figure(row)
    return [
        Headline(f"{row['figure']} of {name}", shown_figure(figure, value), shown_interval(figure, value))
        for name, value in zip(answer.names, row["values"], strict=True)
    ]


def verdicts(answer: SideBySide) -> Iterator[str]:
    """Which is best in the figures that decide: the first time, and the first price."""
    seen: set[str] = set()
    for row in answer.rows:
        numbers = _numbers(row["values"])
        if row["unit"] in seen or row["unit"] not in ("s", "usd") or None in numbers:
            continue
        seen.add(row["unit"])
        known = [float(number) for number in numbers if number is not None]
        if max(known) - min(known) <= SAME * abs(known[0]):
            yield f"{row['figure']}: equal"
            continue
        best = known.index(max(known) if row["higher_is_better"] else min(known))
        yield f"{row['figure']}: best is {answer.names[best]}, {shown_figure(as_figure(row), known[best])}"


def _numbers(values: Sequence[Any]) -> list[float | None]:
    return [value.get("value") if isinstance(value, Mapping) else None for value in values]


def _next(answer: SideBySide) -> list[str]:
    command = "export" if answer.plans else "explain"
    named = next((name for name in answer.names if " " not in name), "")
    return [*([words("gnomon", command, named)] if named else []), "gnomon history"]
