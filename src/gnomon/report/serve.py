"""The text of `gnomon simulate serve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style, digits, flag, fleet, next_steps, plural, table, words
from gnomon.units import format_count, format_duration, format_money

METRICS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "end to end", "queue_s": "waiting"}
STATISTICS = ("mean", "p50", "p90", "p99")


def render(payload: Mapping[str, Any], style: Style) -> str:
    return "\n".join(
        [style.strong(payload["title"]), "", *_overload(payload, style), *_answer(payload, style), ""]
        + [*_times(payload, style), ""]
        + [*_why(payload), "", *_next(payload)]
    )


def _overload(payload: Mapping[str, Any], style: Style) -> list[str]:
    """Said first: the times of an overloaded engine are those of this many requests and of no others."""
    if not payload.get("overloaded"):
        return []
    most = float(payload["saturation_rps"])
    what = f"overloaded: the replica sustains {digits(most)} requests/s, and more arrive"
    return [f"  {style.bad(what)}; the queue, and every time below, grows with the length of the load", ""]


def _answer(payload: Mapping[str, Any], style: Style) -> list[str]:
    requests, span = int(payload["requests"]), float(payload["makespan_s"])
    figures = [
        style.strong(f"{digits(float(payload['output_tokens_per_s']))} output tokens/s"),
        f"TTFT p90 {_seconds(payload['ttft_s'].get('p90'))}{_band(payload, 'ttft_s')}",
        f"TPOT p90 {_seconds(payload['tpot_s'].get('p90'))}{_band(payload, 'tpot_s')}",
        f"{format_money(payload['usd_per_mtok'])}/Mtok",
    ]
    ran = f"{plural(requests, 'request')} in {format_duration(span)}"
    if payload["saturation_rps"] and not payload["overloaded"]:
        ran += f"; saturation at {digits(float(payload['saturation_rps']))} requests/s"
    return [f"  {'      '.join(figures)}", f"  {ran}"]


def _band(payload: Mapping[str, Any], metric: str) -> str:
    low, high = payload.get("bands", {}).get(metric, {}).get("p90") or (None, None)
    return f" ({_seconds(low)} to {_seconds(high)})" if low is not None and low == low else ""


def _times(payload: Mapping[str, Any], style: Style) -> list[str]:
    rows: list[tuple[str, ...]] = [("", *STATISTICS)]
    for key, name in METRICS.items():
        rows.append((name, *(_seconds(payload[key].get(statistic)) for statistic in STATISTICS)))
    lines = table(rows, "<>>>>")
    return [style.faint(lines[0]), *lines[1:]]


def _seconds(value: float | None) -> str:
    return "-" if value is None or value != value else format_duration(value)


def _why(payload: Mapping[str, Any]) -> list[str]:
    busy = f"busy {float(payload['busy_fraction']):.0%} of the time over {format_count(payload['steps'])} steps"
    blocks, peak = int(payload["kv_blocks"]), int(payload["peak_kv_blocks"])
    share = f"{peak / blocks:.0%}" if blocks else "none"
    cache = f"at most {share} of the KV cache in use ({peak:,} of {blocks:,} blocks)"
    lost = int(payload["preemptions"])
    energy = f"{float(payload['energy_j']) / 3600:,.1f} Wh, {format_money(payload['cost_usd'])}"
    return [
        f"  {busy}",
        f"  {cache}" + (f"; {plural(lost, 'preemption')}" if lost else ""),
        f"  {energy} in all, {digits(float(payload['power_w']))} W on average",
    ]


def _next(payload: Mapping[str, Any]) -> list[str]:
    inputs = payload["inputs"]
    load: list[Any] = [*flag("--trace", inputs.get("trace")), *flag("--rate", inputs.get("rate"))]
    load += [*flag("--input", inputs.get("input")), *flag("--output", inputs.get("output"))]
    goals = ("--slo", "ttft_p90=1s,tpot_p90=50ms")
    on = ("--fleet", fleet(inputs["on"]))
    return next_steps("gnomon explain last", words("gnomon", "plan", "serve", inputs["model"], *on, *load, *goals))
