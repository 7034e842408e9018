"""The text of `gnomon try`."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from gnomon.report.text import Style, band, gib, next_steps, table, words
from gnomon.report.train import in_words
from gnomon.units import format_duration

Payload = Mapping[str, Any]
WIDE = 100


def render(payload: Payload, style: Style) -> str:
    against = f", against {payload['against']}" if payload["against"] else ""
    lines = [style.strong(payload["title"]), f"{payload['technique']} ({payload['paper']}){against}", ""]
    mark = style.good if payload["helps"] else style.strong
    lines += [f"  {mark(payload['verdict'])}", ""]
    rows: list[tuple[str, ...]] = [("", "a step", "90%", "memory", "plan")]
    rows += [_row(name, payload[key], payload["inputs"]) for name, key in (("without", "plain"), ("with", "applied"))]
    found = table(rows, "<>>><")
    lines += [style.faint(found[0]), *found[1:], "", *(f"  {line}" for line in wrap(payload["idea"], WIDE)), ""]
    return "\n".join([*lines, *_next(payload)])


def _row(name: str, figures: Payload | None, inputs: Payload) -> tuple[str, ...]:
    if figures is None:
        return (name, "none fits", "", "", "")
    plan = in_words({**inputs, **figures["degrees"], **figures["settings"], "techniques": figures["techniques"]})
    time = figures["step_time_s"]
    edges = band(time).strip("()").removesuffix(", 90%")
    return (name, format_duration(time["value"]), edges, f"{gib(figures['peak_memory_bytes'])} GiB", plan)


def _next(payload: Payload) -> list[str]:
    inputs, figures = payload["inputs"], payload["applied"]
    if figures is None:
        return next_steps(words("gnomon", "papers", "show", payload["paper"]))
    names = [part for name in figures["techniques"] for part in ("--with", name)]
    load = ["--cluster", inputs["on"], "--seq", inputs["seq"], "--global-batch", inputs["global_batch"]]
    return next_steps(
        words("gnomon", "plan", "train", inputs["model"], *load, *names),
        words("gnomon", "papers", "show", payload["paper"]),
    )
