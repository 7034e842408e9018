"""The page of `gnomon simulate serve`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.html.blocks import Drawing, Page, PageBlock, inputs_table, notes, table
from gnomon.report.html.svg import Bar, bars
from gnomon.report.serve import (
    METRICS,
    STATISTICS,
    figures,
    filling_words,
    overload_words,
    ran_words,
    seconds_word,
    time_band,
    why_lines,
)
from gnomon.report.text import digits

Payload = Mapping[str, Any]


def page(payload: Payload) -> Page:
    over = "; ".join(filter(None, overload_words(payload)))
    rows = [(METRICS[metric], *(str(_time(payload, metric, name)) for name in STATISTICS)) for metric in METRICS]
    power = [Headline("power", f"{digits(float(payload['power_w']))} W on average")]
    return Page(
        title=payload["title"],
        subtitle=ran_words(payload),
        verdict=over or filling_words(payload),
        good=False if over or payload.get("settled") is False else None,
        figures=[*_banded(payload), *power],
        blocks=[
            *_plots(payload),
            *table("Times, with intervals of 90% where known", ("", *STATISTICS), rows, "<>>>>"),
            *notes("The run", why_lines(payload)),
            *inputs_table(payload["inputs"]),
        ],
    )


def _banded(payload: Payload) -> Iterator[Headline]:
    """The headline figures; throughput with its interval too."""
    edges = payload.get("bands", {}).get("output_tokens_per_s", {}).get("mean")
    for figure in figures(payload):
        if figure.name == "throughput" and edges and None not in edges:
            yield Headline(figure.name, figure.value, f"({digits(edges[0])} to {digits(edges[1])})")
        else:
            yield figure


def _time(payload: Payload, metric: str, statistic: str) -> Headline:
    shown = seconds_word(payload[metric].get(statistic))
    return Headline(statistic, shown, time_band(payload, metric, statistic))


def _plots(payload: Payload) -> Iterator[PageBlock]:
    """A plot a metric: its statistics as bars with their intervals."""
    for metric, name in METRICS.items():
        rows = []
        for statistic in STATISTICS:
            value = payload[metric].get(statistic)
            if value is None:
                continue
            low, high = payload.get("bands", {}).get(metric, {}).get(statistic) or (None, None)
            edges = (value, value) if low is None or high is None else (min(low, value), max(high, value))
            rows.append(Bar(statistic, value, *edges, str(_time(payload, metric, statistic))))
        if rows:
            yield Drawing(name, bars(rows, f"{name} by statistic"))
