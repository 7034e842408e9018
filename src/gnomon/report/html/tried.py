"""The page of `gnomon try`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.html.blocks import Drawing, Page, inputs_table, notes, table
from gnomon.report.html.svg import Bar, bars
from gnomon.report.text import band
from gnomon.report.tried import SIDES, against_words, compared, figures
from gnomon.units import format_duration


def page(payload: Mapping[str, Any]) -> Page:
    head, *rows = compared(payload)
    timed = [(name, payload[key]["step_time_s"]) for name, key in SIDES if payload[key]]
    drawn = [
        Bar(name, time["value"], time["low"], time["high"], f"{format_duration(time['value'])} {band(time)}".rstrip())
        for name, time in timed
    ]
    return Page(
        title=payload["title"],
        subtitle=against_words(payload),
        verdict=payload["verdict"],
        good=True if payload["helps"] else None,
        figures=figures(payload),
        blocks=[
            *([Drawing("Time of a step", bars(drawn, "time of a step without and with it"))] if drawn else []),
            *table("Without and with it", head, rows, "<>>><"),
            *notes("The idea", [payload["idea"], payload["note"]]),
            *inputs_table(payload["inputs"]),
        ],
    )
