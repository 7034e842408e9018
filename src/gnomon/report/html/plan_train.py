"""The page of `gnomon plan train`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.html.blocks import Listing, Page, PageBlock, inputs_table, notes, table
from gnomon.report.html.train import step_blocks, step_figures
from gnomon.report.plan_train import others, searched_words
from gnomon.report.text import band
from gnomon.report.train import memory_range
from gnomon.units import format_count, format_duration


def page(payload: Mapping[str, Any]) -> Page:
    best, second = payload["best"], payload["runner_up"]
    rows = [("best", payload["label"], f"{format_duration(best['step_time_s']['value'])} {band(best['step_time_s'])}")]
    rows += [("runner-up", second["label"], format_duration(second["step_time_s"]))] if second else []
    why = [(reason, format_count(count)) for reason, count in payload["rejected"].items()]
    start: list[PageBlock] = [Listing("Run it on each node", payload["command"])] if payload["command"] else []
    return Page(
        title=payload["title"],
        subtitle=searched_words(payload),
        verdict=f"best: {payload['label']}",
        good=True,
        figures=step_figures(best),
        blocks=[
            *table("Plans", ("", "plan", "step time"), rows, "<<>"),
            *notes("", [f"{name}: {text}" for name, text in others(payload)] + [memory_range(best)]),
            *step_blocks(best),
            *table("Plans that were not chosen", ("why", "plans"), why, "<>"),
            *start,
            *inputs_table(payload["inputs"]),
            *inputs_table(best["inputs"], "The plan"),
        ],
    )
