"""Plots as inline SVG: bars with intervals, memory against its capacity, and points of two figures.

Text has the colour of the page around it, so that plots can be read on light and on dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 840
LABEL, VALUE = 290, 210
"""Room for the names on the left of bars, and for their values on the right."""
ROW, BAR = 22, 12
LONGEST = 44
"""Letters of a name that there is room for."""
COLOURS = ("#4c7fd0", "#d9822b", "#3f9c6b", "#b3589a", "#8a8f3c", "#c0504d", "#5f9ea0", "#8d6cab")


@dataclass(frozen=True, slots=True)
class Bar:
    """A named value with its interval; `shown` is what stands beside it."""

    name: str
    value: float
    low: float
    high: float
    shown: str


@dataclass(frozen=True, slots=True)
class Point:
    """A plan, or another thing of two figures."""

    name: str
    x: float
    y: float
    chosen: bool = False
    meets: bool = True
    """Whether it meets what is asked of it."""


def bars(rows: Sequence[Bar], what: str) -> str:
    """Horizontal bars from zero; a thin line over each spans its interval."""
    most = max((max(row.value, row.high) for row in rows), default=0.0) or 1.0
    room = WIDTH - LABEL - VALUE
    drawn = []
    for at, row in enumerate(rows):
        top, middle = at * ROW + 5, at * ROW + 11
        x, low, high = (LABEL + room * max(number, 0.0) / most for number in (row.value, row.low, row.high))
        drawn.append(_label(row.name, middle))
        drawn.append(_rect(LABEL, top, x - LABEL, COLOURS[0], f"{row.name}: {row.shown}"))
        if row.low < row.high:
            drawn.append(_line(low, middle, high, middle))
            drawn += [_line(edge, middle - 4, edge, middle + 4) for edge in (low, high)]
        drawn.append(_text(max(x, high) + 6, middle, row.shown))
    return _svg(drawn, ROW * len(rows) + 4, what)


def stacked(rows: Sequence[tuple[str, Mapping[str, float], str]], capacity: float, total: float, what: str) -> str:
    """Parts of each row one after another, with a dashed line where the capacity ends; rows have a name, their parts
    and what stands beside them."""
    names = list(dict.fromkeys(name for _, parts, _ in rows for name, size in parts.items() if size > 0))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    most = max([capacity, total, *(sum(parts.values()) for _, parts, _ in rows)]) or 1.0
    room = WIDTH - LABEL - VALUE
    drawn = []
    for at, (label, parts, shown) in enumerate(rows):
        x = float(LABEL)
        drawn.append(_label(label, at * ROW + 11))
        for name, size in parts.items():
            if size > 0:
                width = room * size / most
                drawn.append(_rect(x, at * ROW + 5, width, colours[name], f"{label}: {name}"))
                x += width
        drawn.append(_text(max(x, LABEL + room * capacity / most) + 6, at * ROW + 11, shown))
    if capacity > 0:
        edge = LABEL + room * capacity / most
        drawn.append(_line(edge, 0, edge, ROW * len(rows) + 2, dashed=True))
    legend, height = _legend(colours, ROW * len(rows) + 6)
    return _svg([*drawn, *legend], height, what)


def scatter(
    points: Sequence[Point], x: tuple[str, Callable[[float], str]], y: tuple[str, Callable[[float], str]]
) -> str:
    """Points on two axes from zero, the chosen one in orange, hollow where they do not meet what is asked; an axis is
    its name and how its numbers are written."""
    left, right, top, bottom, height = 90, 20, 10, 44, 320
    width, tall = WIDTH - left - right, height - top - bottom
    x_ticks, y_ticks = ticks(max(point.x for point in points)), ticks(max(point.y for point in points))
    drawn = []
    for tick in x_ticks:
        place = left + width * tick / x_ticks[-1]
        drawn += [_line(place, top, place, top + tall, faint=True), _text(place, top + tall + 14, x[1](tick), "middle")]
    for tick in y_ticks:
        place = top + tall * (1 - tick / y_ticks[-1])
        drawn += [_line(left, place, left + width, place, faint=True), _text(left - 6, place, y[1](tick), "end")]
    drawn.append(_text(left + width / 2, height - 8, x[0], "middle"))
    drawn.append(_text(left + 6, top + 8, y[0]))
    for point in sorted(points, key=lambda point: point.chosen):
        spot = f'cx="{_n(left + width * point.x / x_ticks[-1])}" cy="{_n(top + tall * (1 - point.y / y_ticks[-1]))}"'
        colour = COLOURS[1] if point.chosen else COLOURS[0]
        kind = f'r="{6 if point.chosen else 4}" stroke="{colour}" fill="{colour if point.meets else "none"}"'
        said = f"{point.name}: {x[1](point.x)}, {y[1](point.y)}"
        drawn.append(f"<circle {spot} {kind}><title>{escape(said)}</title></circle>")
    return _svg(drawn, height, f"{y[0]} by {x[0]}")


def ticks(most: float, about: int = 5) -> list[float]:
    """Round numbers from zero to the first one that is not below the largest value."""
    if not most > 0:
        return [0.0, 1.0]
    raw = most / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * by for by in (1, 2, 2.5, 5, 10) if unit * by >= raw * (1 - 1e-9))
    return [step * at for at in range(math.ceil(most / step - 1e-9) + 1)]


def _legend(colours: Mapping[str, str], top: int) -> tuple[list[str], int]:
    drawn, x, y = [], float(LABEL), top
    for name, colour in colours.items():
        wide = 24 + 7 * len(_short(name))
        if x > LABEL and x + wide > WIDTH:
            x, y = float(LABEL), y + 18
        drawn += [_rect(x, y, 10, colour, name, tall=10), _text(x + 14, y + 5, _short(name))]
        x += wide
    return drawn, y + 18


def _svg(drawn: Iterable[str], height: float, what: str) -> str:
    inside = "\n".join(drawn)
    return f'<svg viewBox="0 0 {WIDTH} {_n(height)}" role="img" aria-label="{escape(what)}">\n{inside}\n</svg>'


def _rect(x: float, y: float, width: float, colour: str, said: str, tall: float = BAR) -> str:
    size = f'x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0.5))}" height="{_n(tall)}"'
    return f'<rect {size} fill="{colour}"><title>{escape(said)}</title></rect>'


def _line(x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False, faint: bool = False) -> str:
    look = ' stroke-dasharray="4 3"' if dashed else ' stroke-opacity="0.2"' if faint else ""
    ends = f'x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"'
    return f'<line {ends} stroke="currentColor"{look}></line>'


def _label(name: str, y: float) -> str:
    return _text(LABEL - 8, y, name, "end")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    place = f'x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" dominant-baseline="middle"'
    full = f"<title>{escape(text)}</title>" if len(text) > LONGEST else ""
    return f'<text {place} fill="currentColor" font-size="12">{full}{escape(_short(text))}</text>'


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _n(number: float) -> str:
    """A place on the plot, to a tenth."""
    return f"{number:.1f}".removesuffix(".0")
