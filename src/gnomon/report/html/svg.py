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
LETTER = 6.4
"""Width of a letter of a label."""
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
    label: str = ""
    """What stands beside it, where there is room."""


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
            drawn.append(line(low, middle, high, middle))
            drawn += [line(edge, middle - 4, edge, middle + 4) for edge in (low, high)]
        drawn.append(text(max(x, high) + 6, middle, row.shown))
    return drawing(drawn, ROW * len(rows) + 4, what)


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
        drawn.append(text(max(x, LABEL + room * capacity / most) + 6, at * ROW + 11, shown))
    if capacity > 0:
        edge = LABEL + room * capacity / most
        drawn.append(line(edge, 0, edge, ROW * len(rows) + 2, dashed=True))
    legend, height = _legend(colours, ROW * len(rows) + 6)
    return drawing([*drawn, *legend], height, what)


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
        drawn += [line(place, top, place, top + tall, faint=True), text(place, top + tall + 14, x[1](tick), "middle")]
    for tick in y_ticks:
        place = top + tall * (1 - tick / y_ticks[-1])
        drawn += [line(left, place, left + width, place, faint=True), text(left - 6, place, y[1](tick), "end")]
    drawn.append(text(left + width / 2, height - 8, x[0], "middle"))
    drawn.append(text(left + 6, top + 8, y[0]))
    spots = [(left + width * one.x / x_ticks[-1], top + tall * (1 - one.y / y_ticks[-1]), one) for one in points]
    for across, down, point in sorted(spots, key=lambda spot: spot[2].chosen):
        spot = f'cx="{tenth(across)}" cy="{tenth(down)}"'
        colour = COLOURS[1] if point.chosen else COLOURS[0]
        kind = f'r="{6 if point.chosen else 4}" stroke="{colour}" fill="{colour if point.meets else "none"}"'
        said = f"{point.name}: {x[1](point.x)}, {y[1](point.y)}"
        drawn.append(f"<circle {spot} {kind}><title>{escape(said)}</title></circle>")
    drawn += _labels(spots)
    return drawing(drawn, height, f"{y[0]} by {x[0]}")


def _labels(spots: Sequence[tuple[float, float, Point]]) -> list[str]:
    """What stands beside points: the chosen one's first, others where nothing else does."""
    taken = [(x - 6, x + 6, y - 6, y + 6) for x, y, _ in spots]
    drawn = []
    for x, y, point in sorted(spots, key=lambda spot: (not spot[2].chosen, spot[1])):
        wide = LETTER * len(_short(point.label))
        for left, anchor, at in ((x + 9, "start", x + 9), (x - 9 - wide, "end", x - 9)):
            box = (left, left + wide, y - 7, y + 7)
            free = not any(box[0] < b and a < box[1] and box[2] < d and c < box[3] for a, b, c, d in taken)
            if wide and left >= 0 and left + wide <= WIDTH and free:
                taken.append(box)
                drawn.append(text(at, y, point.label, anchor, size=11))
                break
    return drawn


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
        drawn += [_rect(x, y, 10, colour, name, tall=10), text(x + 14, y + 5, _short(name))]
        x += wide
    return drawn, y + 18


def drawing(drawn: Iterable[str], height: float, what: str, width: float = WIDTH) -> str:
    """One plot of what is drawn on it; `what` is read out in its place."""
    inside, box = "\n".join(drawn), f"0 0 {tenth(width)} {tenth(height)}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(what)}">\n{inside}\n</svg>'


def as_file(svg: str) -> str:
    """A plot as a file of its own, in dark ink on light and in light ink on dark."""
    ink = "svg { color: #1f2328; font-family: system-ui, sans-serif }"
    dark = "@media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }"
    head, _, rest = svg.partition(">")
    named = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{named}>\n<style>{ink} {dark}</style>{rest}\n"


def _rect(x: float, y: float, width: float, colour: str, said: str, tall: float = BAR) -> str:
    size = f'x="{tenth(x)}" y="{tenth(y)}" width="{tenth(max(width, 0.5))}" height="{tenth(tall)}"'
    return f'<rect {size} fill="{colour}"><title>{escape(said)}</title></rect>'


def line(x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False, faint: bool = False) -> str:
    look = ' stroke-dasharray="4 3"' if dashed else ' stroke-opacity="0.2"' if faint else ""
    ends = f'x1="{tenth(x1)}" y1="{tenth(y1)}" x2="{tenth(x2)}" y2="{tenth(y2)}"'
    return f'<line {ends} stroke="currentColor"{look}></line>'


def _label(name: str, y: float) -> str:
    return text(LABEL - 8, y, name, "end")


def text(
    x: float, y: float, words: str, anchor: str = "start", *, size: int = 12, bold: bool = False, faint: bool = False
) -> str:
    at = f'x="{tenth(x)}" y="{tenth(y)}" text-anchor="{anchor}" dominant-baseline="middle"'
    full = f"<title>{escape(words)}</title>" if len(words) > LONGEST else ""
    look = ' font-weight="600"' * bold + ' fill-opacity="0.75"' * faint
    return f'<text {at} fill="currentColor" font-size="{size}"{look}>{full}{escape(_short(words))}</text>'


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def tenth(number: float) -> str:
    """A place on the plot, to a tenth."""
    return f"{number:.1f}".removesuffix(".0")
