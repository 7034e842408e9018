"""The page of `gnomon predict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnomon.report.figures import Headline, interval
from gnomon.report.html.blocks import Drawing, Page, PageBlock, inputs_table, notes, plot, size_table, table, time_bar
from gnomon.report.html.svg import Bar, stacked
from gnomon.report.predict import (
    LIMITS,
    MOST_LINES,
    bound_words,
    breakdowns,
    figures,
    largest_first,
    parallel_lines,
    shortage_line,
)
from gnomon.report.shortage import IF_IT_FITTED
from gnomon.report.text import gib, scaled
from gnomon.report.train import described
from gnomon.spec.answers import OperatorTime, Prediction
from gnomon.units import format_count, format_duration


def page(answer: Prediction) -> Page:
    fits = answer.fits
    verdict = bound_words(answer) if fits else f"does not fit: {shortage_line(answer)}; {IF_IT_FITTED}"
    blocks: list[PageBlock] = []
    for title, operators in breakdowns(answer):
        blocks += [*time_plot(operators, title), *_operators(operators, answer.time_s.value, title)]
    usable, total = answer.memory_usable_bytes, answer.memory_total_bytes
    parts = answer.memory_parts
    blocks += [*memory_plot(parts, usable or total, total), *size_table("Memory of a chip", parts, usable)]
    blocks += notes("Several ranks", [*([] if fits else [bound_words(answer)]), *parallel_lines(answer)])
    return Page(
        title=answer.title,
        subtitle=described(answer.inputs) if "zero" in answer.inputs else "",
        verdict=verdict,
        good=None if fits else False,
        figures=[*figures(answer), _memory(answer)],
        blocks=[*blocks, *inputs_table(answer.inputs)],
    )


def _memory(answer: Prediction) -> Headline:
    used, most = answer.memory_bytes, answer.memory_usable_bytes or answer.memory_total_bytes
    return Headline("memory", f"{gib(used.value)} of {gib(most)} GiB", interval(used, gib))


def time_plot(operators: Sequence[OperatorTime], title: str) -> list[PageBlock]:
    """The largest operators as bars, each with its interval, and the others together."""
    ordered = largest_first(operators)
    rows = [time_bar(row.op, row.time_s) for row in ordered[:MOST_LINES]]
    rest = sum(row.time_s.value for row in ordered[MOST_LINES:])
    rows += [Bar(f"{len(ordered) - MOST_LINES} more", rest, rest, rest, format_duration(rest))] if rest else []
    return plot(f"{title[:1].upper()}{title[1:]}", rows, title)


def _operators(operators: Sequence[OperatorTime], total: float, title: str) -> list[PageBlock]:
    rows = []
    for row in largest_first(operators):
        time = row.time_s
        share = f"{time.value / total:.1%}" if total > 0 else ""
        work = (_amount(row.flops, "FLOP"), _amount(row.bytes, "B"))
        origin = ": ".join(filter(None, [time.provenance, time.source]))
        figures = (format_duration(time.value), interval(time, format_duration), share)
        rows.append((row.op, *figures, LIMITS.get(row.bound, row.bound), format_count(row.count), *work, origin))
    head = ("operator", "time", "interval", "share", "bound by", "runs", "arithmetic", "memory traffic", "from")
    return table(f"Operators: {title}", head, rows, "<>>><>>><")


def _amount(value: float, unit: str) -> str:
    return scaled(value, unit) if value else ""


def memory_plot(parts: Mapping[str, float], usable: float, total: float) -> list[PageBlock]:
    """One chip's memory by part, against what can be used of it."""
    shown = f"{gib(sum(parts.values()))} of {gib(usable)} GiB"
    drawn = stacked([("one chip", parts, shown)], usable, total, "memory of a chip by part")
    return [Drawing("Memory against what is usable", drawn)] if parts else []
