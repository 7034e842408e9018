"""What a page is made of: tables, drawings, listings and trees, each of which escapes what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Protocol

from gnomon.report.figures import Headline
from gnomon.report.html.svg import Bar, bars
from gnomon.report.key_figures import number, shown_figure, shown_interval
from gnomon.report.text import band, gib, part
from gnomon.spec.answers import AnswerNode
from gnomon.spec.estimate import Estimate
from gnomon.spec.key_figures import KeyFigure
from gnomon.spec.plan_dict import as_json
from gnomon.units import format_duration


class PageBlock(Protocol):
    """A section of a page: its title, and the HTML below it."""

    @property
    def title(self) -> str: ...

    def html(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PageTable:
    """Rows of texts below a head; `align` has one of `<` and `>` a column."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    align: str

    def html(self) -> str:
        head = "".join(self._cell("th", cell, at) for at, cell in enumerate(self.head))
        lines = ["".join(self._cell("td", cell, at) for at, cell in enumerate(row)) for row in self.rows]
        body = "\n".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"

    def _cell(self, tag: str, text: str, at: int) -> str:
        side = ' class="n"' if self.align[at] == ">" else ""
        return f"<{tag}{side}>{escape(text)}</{tag}>"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plot. `svg` is markup that `gnomon.report.html.svg` made."""

    title: str
    svg: str

    def html(self) -> str:
        return self.svg


@dataclass(frozen=True, slots=True)
class Panels:
    """Small plots beside one another, as many in a row as there is room for."""

    title: str
    svgs: Sequence[str]

    def html(self) -> str:
        return "\n".join(['<div class="panels">', *self.svgs, "</div>"])


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines that are copied or read as they are: a command, a file."""

    title: str
    text: str

    def html(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"


@dataclass(frozen=True, slots=True)
class PageNotes:
    """Sentences, one an item."""

    title: str
    lines: Sequence[str]

    def html(self) -> str:
        return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in self.lines) + "</ul>"


@dataclass(frozen=True, slots=True)
class Tree:
    """An opened number: how it is made, where it comes from, and its parts folded below it."""

    title: str
    node: AnswerNode

    def html(self) -> str:
        return "<ul>" + _branch(self.node, 0) + "</ul>"


OPEN_LEVELS = 2
"""Levels of a tree that are unfolded to begin with."""


def _branch(node: AnswerNode, depth: int) -> str:
    head = f"<strong>{escape(node.name)}</strong> {escape(node.shown)}"
    formula = f"<div>= {escape(node.formula)}</div>" if node.formula else ""
    told = formula + (f'<div class="faint">from {escape(node.origin)}</div>' if node.origin else "")
    if not node.parts:
        return f"<li>{head}{told}</li>"
    parts = "".join(_branch(part, depth + 1) for part in node.parts)
    state = " open" if depth < OPEN_LEVELS else ""
    return f"<li><details{state}><summary>{head}</summary>{told}<ul>{parts}</ul></details></li>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer in pieces: what it is about, the verdict, figures, and the sections below them."""

    title: str
    subtitle: str = ""
    verdict: str = ""
    good: bool | None = None
    """Whether the verdict is welcome, where it is either."""
    figures: Sequence[Headline] = ()
    blocks: Sequence[PageBlock] = field(default=())


def table(title: str, head: tuple[str, ...], rows: Iterable[Sequence[str]], align: str) -> list[PageBlock]:
    """A table, or nothing where it would have no rows."""
    found = list(rows)
    return [PageTable(title, head, found, align)] if found else []


def plot(title: str, rows: Sequence[Bar], what: str) -> list[PageBlock]:
    """Bars, or nothing where there are none."""
    return [Drawing(title, bars(rows, what))] if rows else []


def time_bar(name: str, time: Estimate) -> Bar:
    """A time with its interval as a bar."""
    return Bar(name, time.value, time.low, time.high, f"{format_duration(time.value)} {band(time)}".rstrip())


def figure_bar(name: str, figure: KeyFigure, value: Any) -> Bar:
    """A key figure of an answer, with its interval where it has one, as a bar."""
    middle = number(value) or 0.0
    low, high = (
        (value.get("low", middle), value.get("high", middle)) if isinstance(value, Mapping) else (middle, middle)
    )
    shown = " ".join(filter(None, (shown_figure(figure, value), shown_interval(figure, value))))
    return Bar(name, middle, low, high, shown)


def notes(title: str, lines: Iterable[str]) -> list[PageBlock]:
    found = [line for line in lines if line]
    return [PageNotes(title, found)] if found else []


def inputs_table(inputs: Mapping[str, Any], title: str = "Inputs") -> list[PageBlock]:
    """Every input by its name; what was not given says so."""
    return table(title, ("input", "value"), [(str(name), plain(value)) for name, value in inputs.items()], "<<")


def plain(value: Any) -> str:
    """A value as a cell."""
    value = as_json(value)
    if value is None:
        return "not given"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def size_table(title: str, parts: Mapping[str, float], usable: float | None = None) -> list[PageBlock]:
    """Parts of a chip's memory, their sum, and what can be used."""
    rows = [(name, _size(size)) for name, size in parts.items() if size]
    rows += [("together", f"{gib(sum(parts.values()))} GiB")] if rows else []
    rows += [("usable", f"{gib(usable)} GiB")] if rows and usable else []
    return table(title, ("memory", "size"), rows, "<>")


def _size(size: float) -> str:
    text = part(size)
    return f"{text} GiB" if text.replace(",", "").replace(".", "").isdigit() else text
