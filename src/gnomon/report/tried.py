"""The text of `gnomon try`."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from gnomon.report.figures import Headline, interval
from gnomon.report.text import Style, band, gib, next_steps, plural, table, words
from gnomon.report.train import in_words, same_job
from gnomon.units import format_duration

Payload = Mapping[str, Any]
WIDE = 100
SIDES = (("without", "plain"), ("with", "applied"))
Row = tuple[str, str, str, str, str]


def render(payload: Payload, style: Style) -> str:
    lines = [style.strong(payload["title"]), against_words(payload), ""]
    mark = style.good if payload["helps"] else style.strong
    lines += [f"  {mark(payload['verdict'])}", ""]
    found = table(compared(payload), "<>>><")
    lines += [
        style.faint(found[0]),
        *found[1:],
        "",
        *(f"  {line}" for line in wrap(payload["idea"], WIDE, break_on_hyphens=False)),
        "",
    ]
    lines += (
        [*(f"  {line}" for line in wrap(payload["note"], WIDE, break_on_hyphens=False)), ""] if payload["note"] else []
    )
    return "\n".join([*lines, *_next(payload)])


def against_words(payload: Payload) -> str:
    """The technique, its paper, and what it is compared with."""
    against = f", against {payload['against']}" if payload["against"] else ""
    return f"{payload['technique']} ({payload['paper']}){against}"


def figures(payload: Payload) -> list[Headline]:
    """The gain, a step on each side, and the memory that is saved."""
    found, gain = [], payload["gain"]
    if gain is not None:
        found.append(Headline("gain", f"{gain['value']:.2f}x", interval(gain, lambda value: f"{value:.2f}")))
    for name, key in SIDES:
        time = (payload[key] or {}).get("step_time_s")
        absent = payload["missing"].get(key) or "-"
        found.append(
            Headline(f"a step {name} it", *((format_duration(time["value"]), band(time)) if time else (absent,)))
        )
    if payload["memory_saved_bytes"]:
        found.append(Headline("memory saved", f"{gib(payload['memory_saved_bytes'])} GiB"))
    return found


def compared(payload: Payload) -> list[Row]:
    """Without and with it, below the names of their figures."""
    serving = payload["inputs"].get("work") == "serving"
    row = _served if serving else _row
    rows = [("", "a step", "90%", "a prompt" if serving else "memory", "weights, room" if serving else "plan")]
    for name, key in SIDES:
        figures = payload[key]
        absent = (name, payload["missing"].get(key, ""), "", "", "")
        rows += [absent if figures is None else row(name, figures, payload["inputs"])]
    return rows


def _served(name: str, figures: Payload, inputs: Payload) -> Row:
    time = figures["step_time_s"]
    facts = [_fact(key, value) for one in figures["facts"].values() for key, value in one.items()]
    weights = f"{gib(figures['weight_bytes'])} GiB a chip"
    room = ", ".join([weights, plural(figures["sessions"], "sequence"), *facts])
    return (
        name,
        format_duration(time["value"]),
        _edges(time),
        format_duration(figures["prompt_time_s"]["value"]),
        room,
    )


def _fact(name: str, value: float) -> str:
    if name.endswith("_s"):
        return f"{name.removesuffix('_s').replace('_', ' ')} {format_duration(value)}"
    return f"{name.replace('_', ' ')} {value:,.0f}"


def _edges(time: Payload) -> str:
    return band(time).strip("()").removesuffix(", 90%")


def _row(name: str, figures: Payload, inputs: Payload) -> Row:
    plan = in_words({**inputs, **figures["degrees"], **figures["settings"], "techniques": figures["techniques"]})
    time = figures["step_time_s"]
    return (name, format_duration(time["value"]), _edges(time), f"{gib(figures['peak_memory_bytes'])} GiB", plan)


def _next(payload: Payload) -> list[str]:
    inputs, figures = payload["inputs"], payload["applied"]
    if figures is None:
        return next_steps(words("gnomon", "papers", "show", payload["paper"]))
    names = [part for name in figures["techniques"] for part in ("--with", name)]
    if inputs.get("work") == "serving":
        load = ["--on", inputs["on"], "--batch", inputs["batch"], "--context", inputs["context"] - 1]
        step = words("gnomon", "predict", inputs["model"], *load, *names)
        return next_steps(step, words("gnomon", "papers", "show", payload["paper"]))
    load = ["--cluster", inputs["on"], *same_job({**inputs, "tokens": None})]
    return next_steps(
        words("gnomon", "plan", "train", inputs["model"], *load, *names),
        words("gnomon", "papers", "show", payload["paper"]),
    )
