"""The page of `gnomon simulate serve`."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.report.figures import Headline
from gnomon.report.html.blocks import Drawing, Page, PageBlock, Panels, inputs_table, notes, plot, table
from gnomon.report.html.run_plots import distribution_plots, series_plots
from gnomon.report.html.svg import Bar, stacked
from gnomon.report.serve import (
    METRICS,
    STATISTICS,
    crossing_lines,
    figures,
    filling_words,
    goal_rows,
    goodput_words,
    overload_words,
    pool_rows,
    ran_words,
    seconds_word,
    statistics_of,
    time_band,
    times_of,
    why_lines,
)
from gnomon.report.text import digits, known
from gnomon.spec.answers import ServingReport

STEPS = {"prefill": "steps with prompts", "decode": "decode steps", "idle": "idle"}


def page(answer: ServingReport) -> Page:
    over = "; ".join(filter(None, overload_words(answer)))
    shown = statistics_of(answer)
    rows = [row for metric in times_of(answer) for row in _time_rows(answer, metric, shown)]
    pools = pool_rows(answer)
    power = [Headline("power", f"{digits(answer.power_w)} W on average")]
    return Page(
        title=answer.title,
        subtitle=ran_words(answer),
        verdict=over or filling_words(answer),
        good=False if over or answer.settled is False else None,
        figures=[*_banded(answer), *power],
        blocks=[
            *table("Goals", ("goal", "limit", "predicted", ""), goal_rows(answer), "<>><"),
            *notes("", [*crossing_lines(answer.goals), goodput_words(answer)]),
            *_plots(answer),
            *_shares(answer),
            *table("Times, with intervals of 90% where known", ("", *shown), rows, "<" + ">" * len(shown)),
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


def _time_rows(answer: ServingReport, metric: str, shown: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The statistics of a metric, and their intervals below them where they are known."""
    times = [_time(answer, metric, name) for name in shown]
    yield METRICS[metric], *(time.value for time in times)
    if any(time.band for time in times):
        yield "90% interval", *(time.band.strip("()") for time in times)


def _time(answer: ServingReport, metric: str, statistic: str) -> Headline:
    shown = seconds_word(times_of(answer)[metric].get(statistic))
    return Headline(statistic, shown, time_band(answer, metric, statistic))


def _plots(answer: ServingReport) -> Iterator[PageBlock]:
    """Distributions and series over time where the answer has them; else a plot a metric, its statistics as bars with
    their intervals."""
    if answer.distributions:
        yield Panels("Distributions", list(distribution_plots(answer)))
        if answer.series:
            yield Panels("Over time, from the first arrival", list(series_plots(answer)))
        return
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


def _shares(answer: ServingReport) -> list[PageBlock]:
    """Where the time goes."""
    parts = {STEPS[name]: share for name, share in answer.step_shares.items() if name in STEPS}
    if not parts:
        return []
    shown = ", ".join(f"{share:.0%}" for share in parts.values())
    return [Drawing("Where the time goes", stacked([("of the time", parts, shown)], 0.0, 1.0, "Shares of the time"))]
