"""The text of `gnomon simulate serve`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.text import Style, chip_count, digits, flag, fleet, next_steps, plural, table, words
from gnomon.units import format_count, format_duration, format_money

METRICS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "end to end", "queue_s": "waiting"}
STATISTICS = ("mean", "p50", "p90", "p99")
LIFETIMES = 6
"""Lifetimes of a request that a run lasts for at least before it shows a steady state."""
LONGER = 20
"""So many are proposed: lifetimes grow while the engine fills."""
LEAST_REQUESTS = 100
HEADROOM = 0.7
"""Share of its saturation that a replica of a proposed fleet is loaded to."""
MOST_CHIPS = 4096
"""A fleet of more is not proposed."""


def render(payload: Mapping[str, Any], style: Style) -> str:
    return "\n".join(
        [style.strong(payload["title"]), "", *_overload(payload, style), *_answer(payload, style)]
        + [*_filling(payload, style), ""]
        + [*_times(payload, style), ""]
        + [*(f"  {line}" for line in why_lines(payload)), "", *_next(payload)]
    )


def _overload(payload: Mapping[str, Any], style: Style) -> list[str]:
    what, which = overload_words(payload)
    return [f"  {style.bad(what)}; {which}", ""] if what else []


def overload_words(payload: Mapping[str, Any]) -> tuple[str, str]:
    """Said first: the times of an overloaded engine are those of this many requests and of no others."""
    if not payload.get("overloaded"):
        return "", ""
    most = digits(float(payload["saturation_rps"]))
    grows = "the queue, and every time below, grows with the length of the load"
    return f"overloaded: the replica sustains {most} requests/s, and more arrive", grows


def _filling(payload: Mapping[str, Any], style: Style) -> list[str]:
    text = filling_words(payload)
    return [style.bad(f"  {text}")] if text else []


def filling_words(payload: Mapping[str, Any]) -> str:
    """Said of runs that are too short to have left an empty engine behind, whose times are lower than those after."""
    if payload.get("settled") is not False or payload.get("overloaded"):
        return ""
    requests, life_s = int(payload["requests"]), float(payload["e2e_s"]["p90"])
    span_s = max(float(payload["makespan_s"]) - life_s, 0.0)
    rate = payload["inputs"].get("rate") or requests / float(payload["makespan_s"])
    inside = float(rate) * life_s
    wanted = math.ceil(max(LONGER * inside, LEAST_REQUESTS + 4 * inside))
    wanted = wanted if wanted > requests else 2 * requests
    if span_s < LIFETIMES * life_s:
        why = f"still filling: {plural(requests, 'request')} are {digits(span_s / life_s, 2)} lifetimes of a request"
        why += f", and a steady state takes {LIFETIMES}"
    else:
        why = f"{plural(requests, 'request')} are few for a steady state"
    return f"{why}; give --requests {_upwards(wanted)} for it"


def _upwards(count: int) -> int:
    """The next number of two digits and zeros."""
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


def _answer(payload: Mapping[str, Any], style: Style) -> list[str]:
    output, ttft, tpot, cost = figures(payload)
    shown = [style.strong(output.value), f"{ttft.name} {ttft}", f"{tpot.name} {tpot}", cost.value]
    return [f"  {'      '.join(shown)}", f"  {ran_words(payload)}"]


def ran_words(payload: Mapping[str, Any]) -> str:
    """How much was simulated, and what the replica sustains at most."""
    requests, span = int(payload["requests"]), float(payload["makespan_s"])
    ran = f"{plural(requests, 'request')} in {format_duration(span)}"
    if payload["saturation_rps"] and not payload["overloaded"]:
        ran += f"; saturation at {digits(float(payload['saturation_rps']))} requests/s"
    return ran


def figures(payload: Mapping[str, Any]) -> list[Headline]:
    """Throughput, the times that users wait, and what a million tokens cost."""
    return [
        Headline("throughput", f"{digits(float(payload['output_tokens_per_s']))} output tokens/s"),
        Headline("TTFT p90", seconds_word(payload["ttft_s"].get("p90")), time_band(payload, "ttft_s", "p90")),
        Headline("TPOT p90", seconds_word(payload["tpot_s"].get("p90")), time_band(payload, "tpot_s", "p90")),
        Headline("cost", f"{format_money(payload['usd_per_mtok'])}/Mtok"),
    ]


def time_band(payload: Mapping[str, Any], metric: str, statistic: str) -> str:
    """`(52 ms to 71 ms)`, or nothing where no interval is known."""
    low, high = payload.get("bands", {}).get(metric, {}).get(statistic) or (None, None)
    return f"({seconds_word(low)} to {seconds_word(high)})" if low is not None and low == low else ""


def _times(payload: Mapping[str, Any], style: Style) -> list[str]:
    rows: list[tuple[str, ...]] = [("", *STATISTICS)]
    for key, name in METRICS.items():
        rows.append((name, *(seconds_word(payload[key].get(statistic)) for statistic in STATISTICS)))
    lines = table(rows, "<>>>>")
    return [style.faint(lines[0]), *lines[1:]]


def seconds_word(value: float | None) -> str:
    """A time, or a dash where there is none."""
    return "-" if value is None or value != value else format_duration(value)


def why_lines(payload: Mapping[str, Any]) -> list[str]:
    """What the engine did all the while."""
    busy = f"busy {float(payload['busy_fraction']):.0%} of the time over {format_count(payload['steps'])} steps"
    blocks, peak = int(payload["kv_blocks"]), int(payload["peak_kv_blocks"])
    share = f"{peak / blocks:.0%}" if blocks else "none"
    cache = f"at most {share} of the KV cache in use ({peak:,} of {blocks:,} blocks)"
    lost = int(payload["preemptions"])
    energy = f"{float(payload['energy_j']) / 3600:,.1f} Wh, {format_money(payload['cost_usd'])}"
    return [
        busy,
        cache + (f"; {plural(lost, 'preemption')}" if lost else ""),
        f"{energy} in all, {digits(float(payload['power_w']))} W on average",
    ]


def _next(payload: Mapping[str, Any]) -> list[str]:
    inputs = payload["inputs"]
    load: list[Any] = [*flag("--trace", inputs.get("trace")), *flag("--rate", inputs.get("rate"))]
    load += [*flag("--input", inputs.get("input")), *flag("--output", inputs.get("output"))]
    goals = ("--slo", "ttft_p90=1s,tpot_p90=50ms")
    chips = _chips(payload)
    on = fleet(inputs["on"], max(chips, 8))
    if not 0 < chips <= min(chip_count(on), MOST_CHIPS):
        return next_steps("gnomon explain last")
    plan = words("gnomon", "plan", "serve", inputs["model"], "--fleet", on, *load, *goals)
    return next_steps("gnomon explain last", plan)


def _chips(payload: Mapping[str, Any]) -> int:
    """Chips that take the load with some headroom: one replica's where it is not overloaded, 0 where it is unknown."""
    inputs, most = payload["inputs"], float(payload.get("saturation_rps") or 0.0)
    ranks = math.prod(int(inputs.get(name) or 1) for name in ("tp", "pp", "dp"))
    if not payload.get("overloaded"):
        return ranks
    return math.ceil(float(inputs.get("rate") or 0.0) / (HEADROOM * most)) * ranks if most else 0
