"""The page of `gnomon compare`."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.report.compare import different, figure_rows, figures, heads, load_words, verdicts
from gnomon.report.html.blocks import Drawing, Page, PageBlock, figure_bar, inputs_table, notes, table
from gnomon.report.html.svg import bars
from gnomon.report.key_figures import as_figure, number
from gnomon.spec.side_by_side import SideBySide

MOST_PLOTS = 12


def page(answer: SideBySide) -> Page:
    names = heads(answer)
    head, *rows = figure_rows(answer)
    alike = [] if answer.differs else ["Nothing differs."]
    return Page(
        title=answer.title,
        subtitle=load_words(answer.on) if answer.on else "",
        figures=figures(answer),
        blocks=[
            *notes("", [*verdicts(answer), *alike]),
            *table("Figures, with intervals of 90%", head, rows, "<" + ">" * (len(head) - 1)),
            *table("What differs", ("field", *names), different(answer), "<" * (1 + len(names))),
            *_plots(answer),
            *(block for plan in answer.plans for block in inputs_table(plan, "Plan")),
        ],
    )


def _plots(answer: SideBySide) -> Iterator[PageBlock]:
    for row in answer.rows[:MOST_PLOTS]:
        named = zip(answer.names, row["values"], strict=True)
        drawn = [figure_bar(name, as_figure(row), value) for name, value in named if number(value) is not None]
        if len(drawn) > 1:
            yield Drawing(row["figure"], bars(drawn, f"{row['figure']} of each"))
