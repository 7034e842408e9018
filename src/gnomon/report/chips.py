"""The text of `gnomon chips`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gnomon.report.text import Style, next_steps, plural, scaled, table, words
from gnomon.spec.answers import Result
from gnomon.units import format_bytes, format_duration, format_money

HEAD = ("chip", "memory", "bandwidth", "16 bit", "fp8", "fp4", "power", "price")
ALIGN = "<>>>>>>>"
MOST_PRICES = 12


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    if payload["schema"] == "gnomon.chips.new/1":
        return "\n".join(_new(payload, style))
    chips = payload["chips"]
    if len(chips) == 1 and "sources" in chips[0]:
        return "\n".join(_one(chips[0], style))
    lines = table([HEAD, *map(_row, chips)], ALIGN)
    first = chips[0]["name"] if chips else "H100"
    steps = next_steps(
        words("gnomon", "chips", "show", first),
        words("gnomon", "fit", "llama-3.1-8b", "--on", first),
        words("gnomon", "chips", "new", "my-chip", "--like", first),
    )
    foot = f"  {plural(len(chips), 'chip')}; rates in TFLOP/s, dense; 16 bit is bf16 unless it says fp16"
    return "\n".join([style.faint(lines[0]), *_grouped(chips, lines[1:], style), "", style.faint(foot), "", *steps])


def _new(payload: Mapping[str, Any], style: Style) -> list[str]:
    instead = f", in place of {payload['replaces']}" if payload["replaces"] else ""
    head = style.strong(f"{payload['file']}: {payload['name']} with the figures of {payload['like']}{instead}")
    steps = next_steps(
        words("${EDITOR:-vi}", payload["file"]).replace("'", "", 2),
        words("gnomon", "chips", "show", payload["on"]),
        words("gnomon", "predict", "llama-3.1-8b", "--on", payload["on"]),
    )
    return [head, "", *steps]


def _grouped(chips: Sequence[Mapping[str, Any]], lines: Sequence[str], style: Style) -> list[str]:
    """Headings where chips of one vendor and architecture stand together; none in a list sorted by a figure."""
    families = [(chip["vendor"], chip["architecture"]) for chip in chips]
    if len(list(groupby(families))) != len(set(families)) or len(set(families)) == len(chips) > 1:
        return list(lines)
    shown: list[str] = []
    for family, members in groupby(zip(families, lines, strict=True), key=lambda pair: pair[0]):
        shown += [style.strong(f"{family[0]} {family[1]}"), *(line for _, line in members)]
    return shown


def _row(chip: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        chip["name"],
        format_bytes(chip["memory_bytes"]),
        scaled(chip["memory_bandwidth_bytes_s"], "B/s"),
        _half(chip["rates_flops"]),
        _rate(chip["rates_flops"], "fp8"),
        _rate(chip["rates_flops"], "fp4"),
        f"{chip['tdp_w']:,.0f} W",
        f"{format_money(chip['price_usd_h'])}/h",
    )


def _half(rates: Mapping[str, float]) -> str:
    if "bf16" in rates:
        return _rate(rates, "bf16")
    return f"fp16 {_rate(rates, 'fp16')}" if "fp16" in rates else "-"


def _rate(rates: Mapping[str, float], dtype: str) -> str:
    rate = rates.get(dtype)
    return "-" if not rate else f"{rate / 1e12:,.0f}" if rate >= 1e13 else f"{rate / 1e12:.1f}"


def _one(chip: Mapping[str, Any], style: Style) -> list[str]:
    sources, known = chip["sources"], chip.get("confidence", {})
    rows = [(name, shown, known.get(key, ""), sources.get(key, "")) for name, shown, key in _figures(chip)]
    also = f"also known as {', '.join(chip['aliases'])}" if chip["aliases"] else ""
    year = f", {chip['year']}" if chip.get("year") else ""
    title = f"{chip['name']}: {chip['vendor']} {chip['architecture']}{year}, nodes of {chip['scaleup_size']}"
    steps = next_steps(words("gnomon", "fit", "llama-3.1-8b", "--on", chip["name"]))
    head = [style.strong(title), *filter(None, [also, chip.get("note", "")]), ""]
    return [*head, *table(rows, "<><<"), *_machine(chip, style), *_prices(chip, style), "", *steps]


def _figures(chip: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value, and the key of its source."""
    memory = f"memory ({chip['memory']})" if chip.get("memory") else "memory"
    figures = [
        (memory, format_bytes(chip["memory_bytes"]), "memory_bytes"),
        ("bandwidth", scaled(chip["memory_bandwidth_bytes_s"], "B/s"), "memory_bandwidth_bytes_s"),
        ("L2 cache", f"{chip['l2_bytes'] / 2**20:,.5g} MiB", "l2_bytes"),
        ("processors", f"{chip['sm_count']}", "sm_count"),
        ("clock", scaled(chip["boost_hz"], "Hz"), "boost_hz"),
        ("power limit", f"{chip['tdp_w']:,.0f} W", "tdp_w"),
        ("idle power", f"{chip['idle_w']:.0f} W", "idle_w"),
        ("price", f"{format_money(chip['price_usd_h'])}/h", "price_usd_h"),
    ]
    figures += [(dtype, scaled(rate, "FLOP/s"), f"rates_flops.{dtype}") for dtype, rate in chip["rates_flops"].items()]
    figures += [
        (f"{dtype}, sparse", scaled(rate, "FLOP/s"), f"sparse_flops.{dtype}")
        for dtype, rate in chip.get("sparse_flops", {}).items()
    ]
    for side, what in (("scaleup", "in a node"), ("bridge", "by a bridge"), ("scaleout", "between nodes")):
        link = chip.get(side)
        if link:
            key = f"{side}.bandwidth_bytes_s"
            figures.append((f"{what}, {link['name']}", scaled(link["bandwidth_bytes_s"], "B/s"), key))
            figures.append(("latency per hop", format_duration(link["latency_s"]), f"{side}.latency_s"))
    return figures


def _machine(chip: Mapping[str, Any], style: Style) -> list[str]:
    """The node it is usually bought in, and its host."""
    node = chip.get("machine")
    if not node:
        return []
    adapters = f"{plural(node['adapters'], 'adapter')} of {node['adapter']['name']}"
    lines = ["", style.strong(f"typical machine: {node['name']}, {plural(node['chips'], 'chip')}, {adapters}")]
    host = node["host"]
    if host:
        shared = f" shared by {host['link_sharing']}" if host["link_sharing"] > 1 else ""
        parts = [
            f"host of {host['cores']:,} cores",
            f"{format_bytes(host['memory_bytes'])} at {scaled(host['memory_bandwidth_bytes_s'], 'B/s')}",
            f"{scaled(host['nvme_bytes'], 'B')} of disks at {scaled(host['nvme_read_bytes_s'], 'B/s')}",
            f"{host['link']['name']} to a chip{shared}",
        ]
        lines.append(f"  {', '.join(parts)}")
    return lines


def _prices(chip: Mapping[str, Any], style: Style) -> list[str]:
    prices = chip.get("prices") or []
    if not prices:
        return []
    rows = [
        (
            price["cloud"],
            price["region"],
            price["kind"],
            f"{format_money(price['usd_h'])}/h",
            price["date"],
            price["source"].partition(": ")[2],
        )
        for price in prices[:MOST_PRICES]
    ]
    more = len(prices) - len(rows)
    tail = [f"  {more} more with --json"] if more > 0 else []
    return ["", style.strong("cloud prices, cheapest first"), *table(rows, "<<<><<"), *tail]
