"""The text of `gnomon predict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.text import Style, band, digits, gib, next_steps, table, words
from gnomon.units import format_count, format_duration, format_money

MOST_LINES = 12
LIMITS = {
    "memory": "memory bandwidth",
    "compute": "arithmetic",
    "host": "the host: scheduling and launches",
    "communication": "communication between chips",
    "network": "communication between chips",
    "latency": "fixed latencies of small kernels",
}


def render(payload: Mapping[str, Any], style: Style) -> str:
    lines = [style.strong(payload["title"]), "", *_answer(payload, style), ""]
    lines += [*_breakdown(payload["breakdown"], float(payload["time_s"]["value"]), style), ""]
    return "\n".join([*lines, *_memory(payload), "", *_next(payload)])


def _answer(payload: Mapping[str, Any], style: Style) -> list[str]:
    time = payload["time_s"]
    seconds, rate = float(time["value"]), float(payload["tokens_per_s"])
    tokens = rate * seconds
    figures = [style.strong(format_duration(seconds)), band(time), f"{format_count(rate)} tokens/s"]
    if tokens > 0:
        usd = float(payload["cost_usd"]["value"])
        figures.append(f"{digits(float(payload['energy_j']['value']) / tokens, 2)} J/token")
        figures.append(f"{format_money(usd / tokens * 1e6)}/Mtok at {format_money(usd / seconds * 3600)}/h")
    limit = LIMITS.get(payload["bound"], payload["bound"])
    return [f"  {'      '.join(filter(None, figures))}", f"  bound by {limit}: {_share(payload)}"]


def _share(payload: Mapping[str, Any]) -> str:
    return f"{float(payload['bound_share']):.0%} of the time"


def _breakdown(operators: Sequence[Mapping[str, Any]], total: float, style: Style) -> list[str]:
    ordered = sorted(operators, key=lambda row: -float(row["time_s"]["value"]))
    rows = [("where the time goes", "time", "share", "bound by", "from")]
    rows += [_row(row, total) for row in ordered[:MOST_LINES]]
    rest = ordered[MOST_LINES:]
    if rest:
        seconds = sum(float(row["time_s"]["value"]) for row in rest)
        rows.append((f"{len(rest)} more", format_duration(seconds), _percent(seconds, total), "", ""))
    lines = table(rows, "<>><<")
    return [style.faint(lines[0]), *lines[1:]]


def _row(row: Mapping[str, Any], total: float) -> tuple[str, str, str, str, str]:
    time = row["time_s"]
    seconds = float(time["value"])
    origin = ", ".join(filter(None, [time["provenance"], time["source"]]))
    return row["op"], format_duration(seconds), _percent(seconds, total), row["bound"], origin


def _percent(part: float, total: float) -> str:
    return f"{part / total:.0%}" if total > 0 else ""


def _memory(payload: Mapping[str, Any]) -> list[str]:
    used, parts = float(payload["memory_bytes"]["value"]), payload["memory_parts"]
    names = {"kv": "KV"}
    listed = ", ".join(f"{names.get(name, name)} {gib(size)}" for name, size in parts.items())
    return [f"  memory {gib(used)} of {gib(payload['memory_total_bytes'])} GiB: {listed}"]


def _next(payload: Mapping[str, Any]) -> list[str]:
    inputs = payload["inputs"]
    model, on = inputs["model"], inputs["on"]
    largest = max(payload["breakdown"], key=lambda row: float(row["time_s"]["value"]), default=None)
    steps = [words("gnomon", "explain", "last", "--op", largest["op"])] if largest else []
    chip = str(on).partition(":")[0]
    plan = ("--rate", 4, "--input", 1024, "--output", 256, "--slo", "ttft_p90=1s,tpot_p90=50ms")
    steps.append(words("gnomon", "fit", model, "--on", on))
    steps.append(words("gnomon", "plan", "serve", model, "--fleet", f"{chip}:8", *plan))
    return next_steps(*steps)
