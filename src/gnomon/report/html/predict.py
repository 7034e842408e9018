"""The page of `gnomon predict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.figures import Headline, interval
from gnomon.report.html.blocks import Drawing, Page, PageBlock, inputs_table, notes, size_table, table
from gnomon.report.html.svg import Bar, bars, stacked
from gnomon.report.predict import LIMITS, MOST_LINES, bound_words, breakdowns, figures, parallel_lines, why_not
from gnomon.report.shortage import IF_IT_FITTED
from gnomon.report.text import band, gib, scaled
from gnomon.report.train import in_words
from gnomon.units import format_count, format_duration

Payload = Mapping[str, Any]


def page(payload: Payload) -> Page:
    fits = payload.get("fits", True)
    verdict = bound_words(payload) if fits else f"does not fit: {why_not(payload)}; {IF_IT_FITTED}"
    blocks: list[PageBlock] = []
    for title, operators in breakdowns(payload):
        blocks += [*time_plot(operators, title), *_operators(operators, float(payload["time_s"]["value"]), title)]
    usable, total = payload.get("memory_usable_bytes"), payload["memory_total_bytes"]
    parts = payload["memory_parts"]
    blocks += [*memory_plot(parts, usable or total, total), *size_table("Memory of a chip", parts, usable)]
    blocks += notes("Several ranks", [*([] if fits else [bound_words(payload)]), *parallel_lines(payload)])
    return Page(
        title=payload["title"],
        subtitle=in_words(payload["inputs"]) if "zero" in payload["inputs"] else "",
        verdict=verdict,
        good=None if fits else False,
        figures=[*figures(payload), _memory(payload)],
        blocks=[*blocks, *inputs_table(payload["inputs"])],
    )


def _memory(payload: Payload) -> Headline:
    used, most = payload["memory_bytes"], payload.get("memory_usable_bytes") or payload["memory_total_bytes"]
    return Headline("memory", f"{gib(used['value'])} of {gib(most)} GiB", interval(used, gib))


def time_plot(operators: Sequence[Payload], title: str) -> list[PageBlock]:
    """The largest operators as bars, each with its interval, and the others together."""
    ordered = sorted(operators, key=lambda row: -float(row["time_s"]["value"]))
    rows = [_bar(row) for row in ordered[:MOST_LINES]]
    rest = sum(float(row["time_s"]["value"]) for row in ordered[MOST_LINES:])
    rows += [Bar(f"{len(ordered) - MOST_LINES} more", rest, rest, rest, format_duration(rest))] if rest else []
    return [Drawing(f"{title[:1].upper()}{title[1:]}", bars(rows, title))] if rows else []


def _bar(row: Payload) -> Bar:
    time = row["time_s"]
    value, low, high = (float(time[name]) for name in ("value", "low", "high"))
    return Bar(str(row["op"]), value, low, high, f"{format_duration(value)} {band(time)}".rstrip())


def _operators(operators: Sequence[Payload], total: float, title: str) -> list[PageBlock]:
    rows = []
    for row in sorted(operators, key=lambda row: -float(row["time_s"]["value"])):
        bar = _bar(row)
        share = f"{bar.value / total:.1%}" if total > 0 else ""
        edges = interval({"low": bar.low, "high": bar.high}, format_duration)
        work = (_amount(row.get("flops"), "FLOP"), _amount(row.get("bytes"), "B"))
        origin = ": ".join(filter(None, [row["time_s"].get("provenance"), row["time_s"].get("source")]))
        limit = LIMITS.get(row["bound"], str(row["bound"]))
        count = format_count(row.get("count") or 0)
        rows.append((bar.name, format_duration(bar.value), edges, share, limit, count, *work, origin))
    head = ("operator", "time", "interval", "share", "bound by", "runs", "arithmetic", "memory traffic", "from")
    return table(f"Operators: {title}", head, rows, "<>>><>>><")


def _amount(value: Any, unit: str) -> str:
    return scaled(float(value), unit) if value else ""


def memory_plot(parts: Mapping[str, float], usable: float, total: float) -> list[PageBlock]:
    """One chip's memory by part, against what can be used of it."""
    sizes = {name: float(size) for name, size in parts.items()}
    shown = f"{gib(sum(sizes.values()))} of {gib(usable)} GiB"
    drawn = stacked([("one chip", sizes, shown)], float(usable), float(total), "memory of a chip by part")
    return [Drawing("Memory against what is usable", drawn)] if sizes else []
