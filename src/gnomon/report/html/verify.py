"""The page of `gnomon verify`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.html.blocks import Drawing, Page, inputs_table, plain, table
from gnomon.report.html.svg import Bar, bars
from gnomon.report.verify import compared, figures


def page(payload: Mapping[str, Any]) -> Page:
    head, *rows = compared(payload["parts"])
    errors = [(row[0], row[1], part["error"]) for row, part in zip(rows, payload["parts"], strict=True)]
    drawn = [
        Bar(" ".join(filter(None, (name, load))), abs(error), abs(error), abs(error), f"{error:+.1%}")
        for name, load, error in errors
        if error is not None
    ]
    plan = payload.get("plan") or {}
    return Page(
        title=payload["title"],
        figures=figures(payload),
        blocks=[
            *([Drawing("Error of each figure", bars(drawn, "error of each figure"))] if drawn else []),
            *table("Measured beside predicted", head, rows, "<>>>>"),
            *inputs_table(payload["conditions"], "Measured with"),
            *table("The plan", ("field", "value"), [(name, plain(value)) for name, value in plan.items()], "<<"),
        ],
    )
