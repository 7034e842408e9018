"""The page of `gnomon fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.fit import figures, technique_lines, verdict_words
from gnomon.report.html.blocks import Page, inputs_table, notes, plain, size_table, table
from gnomon.report.html.predict import memory_plot
from gnomon.report.text import gib
from gnomon.units import format_count


def page(payload: Mapping[str, Any]) -> Page:
    parts, usable = payload["parts"], float(payload["usable_bytes"])
    rows = [
        (
            change["what"],
            f"{gib(change['kv_bytes'])} GiB",
            format_count(change["kv_tokens"]),
            ", ".join(f"--{name} {plain(value)}" for name, value in change["flags"].items()),
            change.get("note") or "",
        )
        for change in payload["changes"]
    ]
    head = ("change", "KV cache", "tokens", "flags", "note")
    return Page(
        title=payload["title"],
        verdict=verdict_words(payload),
        good=None if payload.get("close") else bool(payload["fits"]),
        figures=figures(payload),
        blocks=[
            *memory_plot(parts, usable, float(payload["total_bytes"])),
            *size_table("Memory of a chip", parts, usable),
            *table("The smallest changes that fit", head, rows, "<>><<"),
            *notes("Techniques", technique_lines(payload)),
            *inputs_table(payload["inputs"]),
        ],
    )
