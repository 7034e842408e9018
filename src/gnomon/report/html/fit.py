"""The page of `gnomon fit`."""

from __future__ import annotations

from gnomon.report.fit import figures, verdict_words
from gnomon.report.html.blocks import Page, inputs_table, notes, plain, size_table, table
from gnomon.report.html.predict import memory_plot
from gnomon.report.text import gib, technique_lines
from gnomon.spec.answers import Fit
from gnomon.units import format_count


def page(answer: Fit) -> Page:
    parts, usable = answer.parts, answer.usable_bytes
    rows = [
        (
            change.what,
            f"{gib(change.kv_bytes)} GiB",
            format_count(change.kv_tokens),
            ", ".join(f"--{name} {plain(value)}" for name, value in change.flags.items()),
            change.note,
        )
        for change in answer.changes
    ]
    head = ("change", "KV cache", "tokens", "flags", "note")
    return Page(
        title=answer.title,
        verdict=verdict_words(answer),
        good=None if answer.close else answer.fits,
        figures=figures(answer),
        blocks=[
            *memory_plot(parts, usable, answer.total_bytes),
            *size_table("Memory of a chip", parts, usable),
            *table("The smallest changes that fit", head, rows, "<>><<"),
            *notes("Techniques", technique_lines(answer.techniques)),
            *inputs_table(answer.inputs),
        ],
    )
