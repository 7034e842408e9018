"""Plots of a served load: distributions of its times, and series over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gnomon.report.html.lines import Line, Mark, PlotAxis, line_plot
from gnomon.report.serve import METRICS
from gnomon.spec.answers import ServingReport
from gnomon.units import format_count, format_duration

CUTS = (50, 90, 99)
"""Percentiles that are marked on a distribution."""
BEYOND = 1.15
"""A distribution is drawn up to so many times its p99: what lies beyond is in the table."""
FULL_CLOCK = 0.995
"""From here on the clock is not worth a plot."""
OF = {"itl_s": "tokens"}
"""What a distribution is over, where not over requests."""


def distribution_plots(answer: ServingReport) -> Iterator[str]:
    """A plot a metric: the share of requests, or of tokens, that is no slower."""
    for metric, name in METRICS.items():
        points = answer.distributions.get(metric, ())
        if len(points) < 2:
            continue
        step = 100 / (len(points) - 1)
        cuts = {cut: points[round(cut / step)] for cut in CUTS}
        marks = [Mark(name=f"p{cut} {format_duration(at)}", x=at, y=cut) for cut, at in cuts.items()]
        limits = [one["limit_s"] for one in answer.goals if one["goal"].startswith(metric.removesuffix("s"))]
        last = BEYOND * max([cuts[99], *(limit for limit in limits if limit < 2 * cuts[99])])
        yield line_plot(
            name,
            [Line(name=name, xs=points, ys=[step * at for at in range(len(points))], filled=True)],
            _time_axis(last),
            PlotAxis(name=f"{OF.get(metric, 'requests')} within", shown=lambda share: f"{share:g}%", last=100.0),
            [*marks, *(Mark(name="goal", x=limit) for limit in limits)],
        )


def series_plots(answer: ServingReport) -> Iterator[str]:
    """Means over bins: batch and queue, KV cache, tokens, steps, power, and hits in the prefix cache where there are
    any."""
    series, counts, shares = answer.series, PlotAxis(name="", shown=_count), PlotAxis(name="", shown=_share, last=1.0)
    near = answer.peak_kv_blocks > answer.kv_blocks / 3
    blocks = [Mark(name="all blocks", y=float(answer.kv_blocks))] if near else []
    prefill, decode = series["prefill_share"], series["decode_share"]
    busy = [(some or 0.0) + (more or 0.0) for some, more in zip(prefill, decode, strict=True)]
    yield _over_time(series, "Sequences and queue", {name: series[name] for name in ("running", "waiting")}, counts)
    yield _over_time(series, "KV blocks in use", {"blocks": series["kv_blocks"]}, counts, blocks)
    yield _over_time(series, "Output tokens per second", {"tokens/s": series["output_tokens_per_s"]}, counts)
    yield _over_time(series, "Time in steps", {"all steps": busy, "with prompts": prefill}, shares)
    yield _over_time(series, "Requests arriving per second", {"requests/s": series["arrivals_per_s"]}, counts)
    yield _over_time(series, "Power of all chips", {"power": series["power_w"]}, PlotAxis(name="", shown=_watts))
    if any(value is not None and value < FULL_CLOCK for value in series["clock"]):
        yield _over_time(series, "Clock, of the highest", {"clock": series["clock"]}, shares)
    if any(series["cache_hit_rate"]):
        yield _over_time(series, "Prefix cache hit rate", {"prompt tokens": series["cache_hit_rate"]}, shares)


def _over_time(
    series: Mapping[str, Sequence[float | None]],
    title: str,
    columns: Mapping[str, Sequence[float | None]],
    y: PlotAxis,
    marks: Sequence[Mark] = (),
) -> str:
    width = series["bin_s"][0] or 0.0
    middles = [(at + 0.5) * width for at in range(len(series["start_s"]))]
    lines = [Line(name=name, xs=middles, ys=values, filled=True) for name, values in columns.items()]
    return line_plot(title, lines, _time_axis(len(middles) * width), y, marks)


def _time_axis(last_s: float) -> PlotAxis:
    """With round numbers of the unit that its end is shown in."""
    unit = next((scale for scale, limit in ((3600.0, 7200.0), (60.0, 120.0)) if last_s >= limit), 1.0)
    return PlotAxis(name="", shown=_duration, last=last_s or 1.0, unit=unit)


def _duration(seconds: float) -> str:
    return "0" if seconds == 0 else format_duration(seconds)


def _count(value: float) -> str:
    return format_count(value) if value >= 1000 else f"{value:g}"


def _share(value: float) -> str:
    return f"{value:.0%}"


def _watts(value: float) -> str:
    return f"{value:,.0f} W"
