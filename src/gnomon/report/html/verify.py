"""The page of `gnomon verify`."""

from __future__ import annotations

from gnomon.report.html.blocks import Page, inputs_table, plain, plot, table
from gnomon.report.html.svg import Bar
from gnomon.report.verify import compared, figures
from gnomon.spec.answers import Verified
from gnomon.spec.plan_dict import plan_to_dict


def page(answer: Verified) -> Page:
    head, *rows = compared(answer.parts)
    errors = [(row[0], row[1], part["error"]) for row, part in zip(rows, answer.parts, strict=True)]
    drawn = [
        Bar(" ".join(filter(None, (name, load))), abs(error), abs(error), abs(error), f"{error:+.1%}")
        for name, load, error in errors
        if error is not None
    ]
    plan = plan_to_dict(answer.plan) if answer.plan else {}
    return Page(
        title=answer.title,
        figures=figures(answer),
        blocks=[
            *plot("Error of each figure", drawn, "error of each figure"),
            *table("Measured beside predicted", head, rows, "<>>>>"),
            *inputs_table(answer.conditions, "Measured with"),
            *table("The plan", ("field", "value"), [(name, plain(value)) for name, value in plan.items()], "<<"),
        ],
    )
