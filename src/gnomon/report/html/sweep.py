"""The page of `gnomon sweep`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnomon.report.html.blocks import Drawing, Page, PageBlock, figure_bar, inputs_table, notes, table
from gnomon.report.html.svg import Point, bars, scatter
from gnomon.report.key_figures import number, shown_number
from gnomon.report.sweep import as_table, best_lines, counted, error_lines, figures, known_figures, value_word
from gnomon.report.text import digits
from gnomon.spec.key_figures import KeyFigure
from gnomon.spec.sweep import SweepReport

Payload = Mapping[str, Any]
MOST_BARS = 32
"""Answers up to which each has a bar; of more, points show how a figure goes with a value."""
MOST_PLOTS = 4


def page(answer: SweepReport) -> Page:
    head, rows, align = as_table(answer, answer.rows)
    known = len(answer.rows) == answer.questions
    title = "Answers" if known else f"Answers: {len(answer.rows):,} of {answer.questions:,}, evenly chosen"
    return Page(
        title=answer.title,
        subtitle=counted(answer),
        figures=figures(answer),
        blocks=[
            *_plots(answer),
            *notes("The best and the worst", best_lines(answer)),
            *notes("Refused", error_lines(answer)),
            *inputs_table(answer.best_question, "The best question"),
            *table(title, head, rows, align),
        ],
    )


def _plots(answer: SweepReport) -> Iterator[PageBlock]:
    axis = _axis(answer)
    for figure in known_figures(answer)[:MOST_PLOTS]:
        rows = [row for row in answer.rows if number(row["figures"].get(figure.name)) is not None]
        if len(rows) < 2:
            continue
        if len(rows) <= MOST_BARS or axis is None:
            drawn = [figure_bar(_name(row), figure, row["figures"][figure.name]) for row in rows[:MOST_BARS]]
            yield Drawing(figure.name, bars(drawn, f"{figure.name} of each question"))
        else:
            yield Drawing(f"{figure.name} by {axis}; orange is the best", _scatter(answer, rows, figure, axis))


def _scatter(answer: SweepReport, rows: Sequence[Payload], figure: KeyFigure, axis: str) -> str:
    best = answer.extremes.get(figure.name, {}).get("best", {}).get("index")
    points = [
        Point(_name(row), float(row["values"][axis]), number(row["figures"][figure.name]) or 0.0, row["index"] == best)
        for row in rows
        if _is_number(row["values"].get(axis))
    ]
    return scatter(points, (axis, digits), (figure.name, lambda value: shown_number(figure.unit, value)))


def _axis(answer: SweepReport) -> str | None:
    """The swept number with the most values."""
    counts = {
        name: len({row["values"][name] for row in answer.rows})
        for name in answer.swept
        if all(_is_number(row["values"].get(name)) for row in answer.rows)
    }
    return max(counts, key=lambda name: counts[name], default=None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _name(row: Payload) -> str:
    named = (f"{name} {value_word(value)}" for name, value in row["values"].items() if value is not None)
    return f"#{row['index']} {', '.join(named)}" + ", does not fit" * (row["fits"] is False)
