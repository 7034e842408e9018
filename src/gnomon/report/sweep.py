"""The text of `gnomon sweep`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnomon.errors import FAULT, shortened
from gnomon.report.figures import Headline
from gnomon.report.key_figures import as_figure, shown_figure, shown_number
from gnomon.report.text import INDENT, Style, headed, next_steps, plural, words
from gnomon.spec.key_figures import FITS, KeyFigure
from gnomon.spec.sweep import SweepReport, thinned

Payload = Mapping[str, Any]
MOST_ROWS, MOST_FIGURES, LONGEST = 40, 4, 40
"""Rows and figures that a terminal has room for, and letters of a value."""
POSITIONAL = {"try": "name"}
"""What comes before the flags of a command; of most it is the model."""
FLAGS = {"techniques": "--with", "dtypes": "--dtype"}
"""Flags that are not called as their parameter is."""


def render(answer: SweepReport, style: Style) -> str:
    lines = [style.strong(answer.title), counted(answer), ""]
    rows = answer.rows
    shown = [rows[place] for place in thinned(len(rows), MOST_ROWS)]
    if shown:
        head, cells, align = as_table(answer, shown, MOST_FIGURES)
        lines += headed([head, *cells], align, style)
        lines += [f"{INDENT}{len(shown)} of {plural(answer.questions, 'row')}"] * (len(shown) < answer.questions)
        lines.append("")
    lines += [f"{INDENT}{line}" for line in best_lines(answer)]
    lines += [f"{INDENT}{line}" for line in error_lines(answer)]
    return "\n".join([*lines, "", *next_steps(*_next(answer))])


def counted(answer: SweepReport) -> str:
    """How many there are, and where."""
    counts = {"answered": answer.answered, "refused": answer.refused - answer.faults, "failed": answer.faults}
    said = [f"{count:,} {word}" for word, count in counts.items() if count or word == "answered"]
    return f"{', '.join(said)}: {answer.out}"


def figures(answer: SweepReport) -> list[Headline]:
    """How many questions were answered, and the best of the first figures."""
    best = [
        Headline(f"best {figure.name}", shown_number(figure.unit, answer.extremes[figure.name]["best"]["value"]))
        for figure in known_figures(answer)
        if figure.name in answer.extremes
    ]
    return [Headline("answered", f"{answer.answered:,} of {answer.questions:,}"), *best[:MOST_FIGURES]]


def known_figures(answer: SweepReport) -> list[KeyFigure]:
    return [as_figure(one) for one in answer.figures]


def as_table(
    answer: SweepReport, rows: Sequence[Payload], most: int | None = None
) -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """The swept values and the figures of some rows: the head, the cells, and how columns are aligned. Whether an
    answer fits is among them wherever one does not."""
    known = known_figures(answer)
    given = [figure for figure in known if any(figure.name in row["figures"] for row in answer.rows)][:most]
    if FITS.name not in [figure.name for figure in given] and any(row["fits"] is False for row in answer.rows):
        given.append(FITS)
    head = ("#", *answer.swept, *(figure.name for figure in given))
    cells = [
        (
            str(row["index"]),
            *(value_word(row["values"].get(name)) for name in answer.swept),
            *(_cell(row, figure, place) for place, figure in enumerate(given)),
        )
        for row in rows
    ]
    return head, cells, ">" + "<" * len(answer.swept) + ">" * len(given)


def _cell(row: Payload, figure: KeyFigure, place: int) -> str:
    if row["error"] and place == 0:
        return "failed" if row["error"].get("code") == FAULT else "refused"
    return shown_figure(figure, row["fits"] if figure.name == FITS.name else row["figures"].get(figure.name))


def value_word(value: Any) -> str:
    """A swept value in a cell."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{name}={item}" for name, item in value.items())
    elif isinstance(value, (list, tuple)):
        text = ", ".join(map(str, value))
    else:
        text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return shortened(text, LONGEST) or "-"


def best_lines(answer: SweepReport) -> Iterator[str]:
    """The best and the worst of each figure, and the question that has it."""
    for figure in known_figures(answer):
        sides = answer.extremes.get(figure.name)
        if sides and sides["best"]["value"] != sides["worst"]["value"]:
            best, worst = (
                f"{shown_number(figure.unit, sides[side]['value'])} (#{sides[side]['index']})"
                for side in ("best", "worst")
            )
            yield f"{figure.name}: best {best}, worst {worst}"


def error_lines(answer: SweepReport) -> Iterator[str]:
    for error in answer.errors:
        word = "failed" if error["code"] == FAULT else "refused"
        yield f"{word}: {plural(error['count'], 'question')}, the first is #{error['first']}: {error['message']}"


def _next(answer: SweepReport) -> list[str]:
    """The best question by itself."""
    question = answer.best_question
    return [command_line(answer.command, question)] if question else ["gnomon --help"]


def command_line(command: str, question: Payload) -> str:
    """A question as the command line that asks it."""
    first = POSITIONAL.get(command, "model")
    parts: list[Any] = ["gnomon", *command.split(), question.get(first)]
    for name, value in question.items():
        if name != first and value is not None:
            parts += _flag(name, value)
    return words(*parts)


def _flag(name: str, value: Any) -> list[Any]:
    flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if name == "settings":
        return [part for key, item in value.items() for part in ("--set", f"{key}={_plain(item)}")]
    if isinstance(value, Mapping):
        return [flag, ",".join(f"{key}={item}" for key, item in value.items())]
    if name == "techniques":
        return [part for item in value for part in (flag, item)]
    return [flag, ",".join(value) if isinstance(value, (list, tuple)) else value]


def _plain(item: Any) -> Any:
    return str(item).lower() if isinstance(item, bool) else item
