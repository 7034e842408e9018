"""Pictures of clusters as SVG, from the data of their YAML: lanes over time, boxes with arrows, or bars of parts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gnomon.report.html.svg import COLOURS, LETTER, WIDTH, drawing, line, stacked, tenth, text

NAMES, ROW, BAR, TITLE = 130, 30, 22, 26
"""Room for the names of lanes, and heights of a lane, of what is in it and of a panel's title."""
BOX_WIDE, BOX_TALL, ACROSS, DOWN = 150, 40, 225, 74
"""A box, and the distance from one to the next."""
HEAD = 8
"""Length of an arrow's head."""


def picture(data: Mapping[str, Any]) -> str:
    """A picture of the kind that its data says."""
    kinds = {"lanes": _lanes, "boxes": _boxes, "bars": _bars}
    return kinds[data["kind"]](data)


def _lanes(data: Mapping[str, Any]) -> str:
    """Panels below one another on one scale of time; spans of one colour are of one kind."""
    panels = data["panels"]
    spans = [span for panel in panels for lane in panel["lanes"].values() for span in lane]
    kinds = list(dict.fromkeys(_kind(name) for _, _, name in spans))
    scale = (WIDTH - NAMES - 10) / max(begin + long for begin, long, _ in spans)
    drawn, y = [], 0.0
    for panel in panels:
        drawn.append(text(0, y + TITLE / 2, panel["title"], bold=True))
        y += TITLE
        for name, lane in panel["lanes"].items():
            drawn.append(text(NAMES - 10, y + ROW / 2, name, "end"))
            drawn.append(line(NAMES, y + ROW - 2, WIDTH - 10, y + ROW - 2, faint=True))
            for begin, long, what in lane:
                colour = COLOURS[kinds.index(_kind(what)) % len(COLOURS)]
                drawn += _box(NAMES + begin * scale, y + 3, long * scale - 1, BAR, what, colour)
            y += ROW
        y += 8
    return drawing(drawn, y, data["caption"])


def _kind(name: str) -> str:
    """`copy` of `copy 2`."""
    return re.sub(r"\s*\d+$", "", name)


def _box(x: float, y: float, wide: float, tall: float, what: str, colour: str) -> list[str]:
    """A filled box with its name, where there is room for it."""
    size = f'x="{tenth(x)}" y="{tenth(y)}" width="{tenth(wide)}" height="{tenth(tall)}" rx="3"'
    named = [text(x + wide / 2, y + tall / 2, what, "middle", size=11)] if LETTER * len(what) <= wide else []
    look = f'fill="{colour}" fill-opacity="0.45" stroke="{colour}"'
    return [f"<rect {size} {look}><title>{escape(what)}</title></rect>", *named]


def _boxes(data: Mapping[str, Any]) -> str:
    """Boxes on a grid of columns and rows, and arrows between them."""
    places = {name: (column * ACROSS + 1.0, row * DOWN + 1.0) for name, (column, row) in data["boxes"].items()}
    drawn = [part for begin, end, what in data["arrows"] for part in _arrow(places[begin], places[end], what)]
    for name, (x, y) in places.items():
        drawn += _box(x, y, BOX_WIDE, BOX_TALL, name, COLOURS[0])
    wide = max(x for x, _ in places.values()) + BOX_WIDE + 2
    return drawing(drawn, max(y for _, y in places.values()) + BOX_TALL + 2, data["caption"], width=wide)


def _arrow(begin: Sequence[float], end: Sequence[float], what: str) -> list[str]:
    """From the side of a box that faces the other one to that one's; below one another, from edge to edge."""
    (x1, y1), (x2, y2) = begin, end
    if x1 == x2:
        down = y2 > y1
        start, stop = (x1 + BOX_WIDE / 2, y1 + BOX_TALL * down), (x2 + BOX_WIDE / 2, y2 + BOX_TALL * (not down))
    else:
        right = x2 > x1
        start, stop = (x1 + BOX_WIDE * right, y1 + BOX_TALL / 2), (x2 + BOX_WIDE * (not right), y2 + BOX_TALL / 2)
    angle = math.atan2(stop[1] - start[1], stop[0] - start[0])
    corners = [
        (stop[0] - HEAD * math.cos(angle + turn), stop[1] - HEAD * math.sin(angle + turn)) for turn in (-0.4, 0.4)
    ]
    points = " ".join(f"{tenth(x)},{tenth(y)}" for x, y in (stop, *corners))
    middle = ((start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2 - 9)
    label = [text(*middle, what, "middle", size=11)] if what else []
    return [line(*start, *stop), f'<polygon points="{points}" fill="currentColor"></polygon>', *label]


def _bars(data: Mapping[str, Any]) -> str:
    """Rows of parts one after another, and their sum."""
    unit = data["unit"]
    rows = [(name, parts, f"{round(sum(parts.values()), 3):g} {unit}") for name, parts in data["rows"].items()]
    return stacked(rows, 0.0, max(sum(parts.values()) for _, parts, _ in rows), data["caption"])
