"""The page of `gnomon try`."""

from __future__ import annotations

from gnomon.report.html.blocks import Page, inputs_table, notes, plot, table, time_bar
from gnomon.report.tried import against_words, compared, figures, sides
from gnomon.spec.tried import TechniqueComparison


def page(answer: TechniqueComparison) -> Page:
    head, *rows = compared(answer)
    drawn = [time_bar(name, side["step_time_s"]) for name, _, side in sides(answer) if side]
    return Page(
        title=answer.title,
        subtitle=against_words(answer),
        verdict=answer.verdict,
        good=True if answer.helps else None,
        figures=figures(answer),
        blocks=[
            *plot("Time per step", drawn, "time per step without and with it"),
            *table("Without and with it", head, rows, "<>>><"),
            *notes("The idea", [answer.idea, answer.note]),
            *inputs_table(answer.inputs),
        ],
    )
