"""The text of `gnomon chips`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.text import Style, next_steps, scaled, table, words
from gnomon.units import format_bytes, format_money


def render(payload: Mapping[str, Any], style: Style) -> str:
    chips = payload["chips"]
    if len(chips) == 1 and "sources" in chips[0]:
        return "\n".join(_one(chips[0], style))
    rows: list[tuple[str, ...]] = [("chip", "memory", "bandwidth", "bf16", "fp8", "power", "price")]
    rows += [_row(chip) for chip in chips]
    lines = table(rows, "<>>>>>>")
    first = chips[0]["name"] if chips else "H100"
    steps = next_steps(words("gnomon", "chips", "show", first), words("gnomon", "fit", "llama-3.1-8b", "--on", first))
    return "\n".join([style.faint(lines[0]), *lines[1:], "", *steps])


def _row(chip: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        chip["name"],
        format_bytes(chip["memory_bytes"]),
        scaled(chip["memory_bandwidth_bytes_s"], "B/s"),
        _rate(chip, "bf16"),
        _rate(chip, "fp8"),
        f"{chip['tdp_w']:.0f} W",
        f"{format_money(chip['price_usd_h'])}/h",
    )


def _rate(chip: Mapping[str, Any], dtype: str) -> str:
    rate = chip["rates_flops"].get(dtype)
    return scaled(rate, "FLOP/s") if rate else "-"


def _one(chip: Mapping[str, Any], style: Style) -> list[str]:
    sources = chip["sources"]
    figures = [
        ("memory", format_bytes(chip["memory_bytes"]), "memory_bytes"),
        ("bandwidth", scaled(chip["memory_bandwidth_bytes_s"], "B/s"), "memory_bandwidth_bytes_s"),
        ("L2 cache", format_bytes(chip["l2_bytes"]), "l2_bytes"),
        ("processors", f"{chip['sm_count']}", "sm_count"),
        ("clock", scaled(chip["boost_hz"], "Hz"), "boost_hz"),
        ("power limit", f"{chip['tdp_w']:.0f} W", "tdp_w"),
        ("idle power", f"{chip['idle_w']:.0f} W", "idle_w"),
        ("price", f"{format_money(chip['price_usd_h'])}/h", "price_usd_h"),
    ]
    figures += [(dtype, scaled(rate, "FLOP/s"), f"rates_flops.{dtype}") for dtype, rate in chip["rates_flops"].items()]
    for side, what in (("scaleup", "in a node"), ("scaleout", "between nodes")):
        link = chip[side]
        figures.append((f"{what}", f"{scaled(link['bandwidth_bytes_s'], 'B/s')}", f"{side}.bandwidth_bytes_s"))
    rows = [(name, shown, sources.get(key, "")) for name, shown, key in figures]
    also = f"also known as {', '.join(chip['aliases'])}" if chip["aliases"] else ""
    title = f"{chip['name']}: {chip['vendor']} {chip['architecture']}, nodes of {chip['scaleup_size']}"
    steps = next_steps(words("gnomon", "fit", "llama-3.1-8b", "--on", chip["name"]))
    return [style.strong(title), *filter(None, [also]), "", *table(rows, "<><"), "", *steps]
