"""The page of `gnomon simulate serve`."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.report.figures import Headline
from gnomon.report.html.blocks import Page, PageBlock, inputs_table, notes, plot, table
from gnomon.report.html.svg import Bar
from gnomon.report.serve import (
    METRICS,
    STATISTICS,
    figures,
    filling_words,
    overload_words,
    pool_rows,
    ran_words,
    seconds_word,
    time_band,
    times_of,
    why_lines,
)
from gnomon.report.text import digits, known
from gnomon.spec.answers import ServingReport


def page(answer: ServingReport) -> Page:
    over = "; ".join(filter(None, overload_words(answer)))
    rows = [(METRICS[metric], *(str(_time(answer, metric, name)) for name in STATISTICS)) for metric in METRICS]
    pools = pool_rows(answer)
    power = [Headline("power", f"{digits(answer.power_w)} W on average")]
    return Page(
        title=answer.title,
        subtitle=ran_words(answer),
        verdict=over or filling_words(answer),
        good=False if over or answer.settled is False else None,
        figures=[*_banded(answer), *power],
        blocks=[
            *_plots(answer),
            *table("Times, with intervals of 90% where known", ("", *STATISTICS), rows, "<>>>>"),
            *(table("Pools", pools[0], pools[1:], "<<>>>>>>") if pools else ()),
            *notes("The run", why_lines(answer)),
            *inputs_table(answer.inputs),
        ],
    )


def _banded(answer: ServingReport) -> Iterator[Headline]:
    """The headline figures; throughput with its interval too."""
    edges = answer.bands.get("output_tokens_per_s", {}).get("mean")
    for figure in figures(answer):
        if figure.name == "throughput" and edges and None not in map(known, edges):
            yield Headline(figure.name, figure.value, f"({digits(edges[0])} to {digits(edges[1])})")
        else:
            yield figure


def _time(answer: ServingReport, metric: str, statistic: str) -> Headline:
    shown = seconds_word(times_of(answer)[metric].get(statistic))
    return Headline(statistic, shown, time_band(answer, metric, statistic))


def _plots(answer: ServingReport) -> Iterator[PageBlock]:
    """A plot a metric: its statistics as bars with their intervals."""
    for metric, times in times_of(answer).items():
        rows, name = [], METRICS[metric]
        for statistic in STATISTICS:
            value = known(times.get(statistic))
            if value is None:
                continue
            low, high = map(known, answer.bands.get(metric, {}).get(statistic) or (None, None))
            edges = (value, value) if low is None or high is None else (min(low, value), max(high, value))
            rows.append(Bar(statistic, value, *edges, str(_time(answer, metric, statistic))))
        yield from plot(name, rows, f"{name} by statistic")
