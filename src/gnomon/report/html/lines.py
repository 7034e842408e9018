"""Lines over an axis as inline SVG: distributions, series over time, latency against rate.

As in `svg`, text has the colour of the page around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from gnomon.report.html.svg import COLOURS, LETTER, drawing, line, tenth, text, ticks

WIDTH, HEIGHT = 420, 210
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 30, 38


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotAxis:
    """What an axis shows, how its numbers are written, and where it ends (where the lines do, if nothing is said)."""

    name: str
    shown: Callable[[float], str]
    last: float | None = None
    unit: float = 1.0
    """Ticks are round numbers of it: 60 for minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points in order of x; a gap where there is no value."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    filled: bool = False
    dots: bool = False
    """Whether each point is marked, as one that was computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A limit, as a dashed line across the plot at an x or at a y; or, with both, a dot with its name."""

    name: str
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where numbers of two axes are on a plot."""

    x_ticks: Sequence[float]
    y_ticks: Sequence[float]
    x_last: float

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.x_last

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / self.y_ticks[-1])


def line_plot(title: str, lines: Sequence[Line], x: PlotAxis, y: PlotAxis, marks: Sequence[Mark] = ()) -> str:
    """Lines of different colours over two axes, with a legend where there are several."""
    frame = _frame(lines, x, y, marks)
    clip = "clip-" + "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    area = f'x="{LEFT}" y="{TOP - 4}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM + 5}"'
    drawn = [*_grid(frame, x, y), f'<clipPath id="{clip}"><rect {area}></rect></clipPath>']
    drawn.append(f'<g clip-path="url(#{clip})">')
    for at, one in enumerate(lines):
        drawn += _drawn(one, frame, COLOURS[at % len(COLOURS)], x, y)
    drawn += [*(piece for mark in marks for piece in _limit(mark, frame)), "</g>"]
    upright = [mark for mark in marks if mark.y is None]
    drawn += [piece for mark in marks for piece in _name(mark, frame, mark in upright[:-1])]
    drawn += _legend(lines)
    drawn.append(text(0, 9, title, size=13, bold=True))
    return drawing(drawn, HEIGHT, title, WIDTH)


def _frame(lines: Sequence[Line], x: PlotAxis, y: PlotAxis, marks: Sequence[Mark]) -> _Frame:
    most_x = x.last if x.last is not None else max(value for one in lines for value in one.xs)
    tops = [value for one in lines for value in one.ys if value is not None]
    tops += [mark.y for mark in marks if mark.y is not None and mark.x is None]
    most_y = y.last if y.last is not None else max(tops, default=1.0)
    x_ticks = [x.unit * tick for tick in ticks(most_x / x.unit)]
    return _Frame([tick for tick in x_ticks if tick <= most_x * (1 + 1e-9)], ticks(most_y, 4), most_x or 1.0)


def _grid(frame: _Frame, x: PlotAxis, y: PlotAxis) -> Iterator[str]:
    low = HEIGHT - BOTTOM
    for tick in frame.y_ticks:
        at = frame.y(tick)
        yield line(LEFT, at, WIDTH - RIGHT, at, faint=True)
        yield text(LEFT - 6, at, y.shown(tick), "end", size=11)
    for tick in frame.x_ticks:
        at = frame.x(tick)
        yield line(at, low, at, low + 4)
        yield text(at, low + 13, x.shown(tick), "middle", size=11)
    yield line(LEFT, low, WIDTH - RIGHT, low)
    if x.name:
        yield text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 7, x.name, "middle", size=11, faint=True)
    if y.name:
        yield text(LEFT, TOP - 9, y.name, size=11, faint=True)


def _drawn(one: Line, frame: _Frame, colour: str, x: PlotAxis, y: PlotAxis) -> Iterator[str]:
    for points in _pieces(one):
        path = " ".join(f"{tenth(frame.x(at))},{tenth(frame.y(value))}" for at, value in points)
        if one.filled:
            floor = tenth(frame.y(0.0))
            around = f"{tenth(frame.x(points[0][0]))},{floor} {path} {tenth(frame.x(points[-1][0]))},{floor}"
            yield f'<polygon points="{around}" fill="{colour}" fill-opacity="0.16"></polygon>'
        look = f'fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"'
        yield f'<polyline points="{path}" {look}><title>{escape(one.name)}</title></polyline>'
        for at, value in points if one.dots or len(points) == 1 else ():
            yield _dot(frame.x(at), frame.y(value), colour, f"{one.name}: {x.shown(at)}, {y.shown(value)}")


def _pieces(one: Line) -> Iterator[list[tuple[float, float]]]:
    """The points between gaps."""
    points: list[tuple[float, float]] = []
    for at, value in zip(one.xs, one.ys, strict=True):
        if value is not None:
            points.append((at, value))
        elif points:
            yield points
            points = []
    if points:
        yield points


def _limit(mark: Mark, frame: _Frame) -> Iterator[str]:
    if mark.x is not None and mark.y is not None:
        yield _dot(frame.x(mark.x), frame.y(mark.y), "currentColor", mark.name)
    elif mark.x is not None:
        yield line(frame.x(mark.x), TOP, frame.x(mark.x), HEIGHT - BOTTOM, dashed=True)
    elif mark.y is not None:
        yield line(LEFT, frame.y(mark.y), WIDTH - RIGHT, frame.y(mark.y), dashed=True)


def _name(mark: Mark, frame: _Frame, before: bool) -> Iterator[str]:
    """What stands at a mark that is inside the plot; `before` it, as another one follows."""
    if mark.x is not None and mark.x > frame.x_last:
        return
    if mark.x is not None:
        at, down = frame.x(mark.x), TOP + 8.0
        if mark.y is not None:
            down = frame.y(mark.y)
            down += -9 if down < TOP + 9 else 9
        left = before or at + 6 + LETTER * len(mark.name) > WIDTH
        yield text(at + (-6 if left else 6), down, mark.name, "end" if left else "start", size=11)
    elif mark.y is not None:
        yield text(LEFT + 4, frame.y(mark.y) - 7, mark.name, size=11)


def _legend(lines: Sequence[Line]) -> Iterator[str]:
    if len(lines) < 2:
        return
    x = float(WIDTH - RIGHT)
    for at, one in reversed(list(enumerate(lines))):
        x -= 6.2 * len(one.name)
        yield text(x, 9, one.name, size=11)
        x -= 14
        yield f'<rect x="{tenth(x)}" y="4" width="10" height="10" fill="{COLOURS[at % len(COLOURS)]}"></rect>'
        x -= 12


def _dot(x: float, y: float, colour: str, said: str) -> str:
    return f'<circle cx="{tenth(x)}" cy="{tenth(y)}" r="3" fill="{colour}"><title>{escape(said)}</title></circle>'
