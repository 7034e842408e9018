"""The text of `gnomon try`."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from gnomon.report.figures import Headline, interval
from gnomon.report.text import Style, band, gib, headed, next_steps, plural, words
from gnomon.report.train import described, planned_again
from gnomon.spec.estimate import Estimate
from gnomon.spec.tried import TechniqueComparison
from gnomon.units import format_duration

Side = Mapping[str, Any]
"""Figures of a deployment or of a training plan: `ServedSide` or `TrainedSide`."""
WIDE = 100
Row = tuple[str, str, str, str, str]


def render(answer: TechniqueComparison, style: Style) -> str:
    mark = style.good if answer.helps else style.strong
    lines = [style.strong(answer.title), against_words(answer), "", f"  {mark(answer.verdict)}", ""]
    lines += [*headed(compared(answer), "<>>><", style), ""]
    for text in filter(None, (answer.idea, answer.note)):
        lines += [*(f"  {line}" for line in wrap(text, WIDE, break_on_hyphens=False)), ""]
    return "\n".join([*lines, *_next(answer)])


def sides(answer: TechniqueComparison) -> tuple[tuple[str, str, Side | None], ...]:
    """Both, each with its name and why it has no figures."""
    missing = answer.missing
    return (
        ("without", missing.get("plain", ""), answer.plain),
        ("with", missing.get("applied", ""), answer.applied),
    )


def against_words(answer: TechniqueComparison) -> str:
    """The technique, its paper, and what it is compared with."""
    against = f", against {answer.against}" if answer.against else ""
    paper = f" ({answer.paper})" if answer.paper else ""
    return f"{answer.technique}{paper}{against}"


def figures(answer: TechniqueComparison) -> list[Headline]:
    """The gain, a step on each side, and the memory that is saved."""
    found, gain = [], answer.gain
    if gain is not None:
        found.append(Headline("gain", f"{gain.value:.2f}x", interval(gain, lambda value: f"{value:.2f}")))
    for name, missing, side in sides(answer):
        time: Estimate | None = side["step_time_s"] if side else None
        shown = (format_duration(time.value), band(time)) if time else (missing or "-",)
        found.append(Headline(f"step {name} it", *shown))
    if answer.memory_saved_bytes:
        found.append(Headline("memory saved", f"{gib(answer.memory_saved_bytes)} GiB"))
    return found


def compared(answer: TechniqueComparison) -> list[Row]:
    """Without and with it, below the names of their figures."""
    serving = answer.serving
    row = _served if serving else _row
    rows = [("", "per step", "90%", "per prompt" if serving else "memory", "weights, room" if serving else "plan")]
    for name, missing, side in sides(answer):
        rows += [(name, missing, "", "", "") if side is None else row(name, side, answer.inputs)]
    return rows


def _served(name: str, side: Side, inputs: Side) -> Row:
    time, prompt = side["step_time_s"], side["prompt_time_s"]
    added = [_metric(key, value) for one in side["facts"].values() for key, value in one.items()]
    room = ", ".join([f"{gib(side['weight_bytes'])} GiB per chip", plural(side["sessions"], "sequence"), *added])
    return name, format_duration(time.value), _edges(time), format_duration(prompt.value), room


def _metric(name: str, value: float) -> str:
    if name.endswith("_s"):
        return f"{name.removesuffix('_s').replace('_', ' ')} {format_duration(value)}"
    return f"{name.replace('_', ' ')} {value:,.0f}"


def _edges(time: Estimate) -> str:
    return band(time).strip("()").removesuffix(", 90%")


def _row(name: str, side: Side, inputs: Side) -> Row:
    time = side["step_time_s"]
    memory = f"{gib(side['peak_memory_bytes'])} GiB"
    return name, format_duration(time.value), _edges(time), memory, described(plan_of(side, inputs))


def plan_of(side: Side, inputs: Side) -> Side:
    """The inputs of a training plan's own step."""
    return {**inputs, **side["degrees"], **side["settings"], "techniques": side["techniques"]}


def _next(answer: TechniqueComparison) -> list[str]:
    inputs = answer.inputs
    paper = words("gnomon", "papers", "show", answer.paper) if answer.paper else words("gnomon", "techniques")
    if answer.applied is None:
        return next_steps(paper)
    if answer.serving:
        names = [part for name in answer.applied["techniques"] for part in ("--with", name)]
        load = ["--on", inputs["on"], "--batch", inputs["batch"], "--context", inputs["context"] - 1]
        return next_steps(words("gnomon", "predict", inputs["model"], *load, *names), paper)
    return next_steps(planned_again({**inputs, "techniques": answer.applied["techniques"]}, inputs["on"]), paper)
