"""A tried idea as a tree of nodes: its gain, and the two plans that it is the ratio of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.nodes import AnswerNode, metric
from gnomon.report.text import flag, gib, words
from gnomon.report.train import in_words, same_job
from gnomon.units import format_duration, format_money

Payload = Mapping[str, Any]
SIDES = {"plain": "without it", "applied": "with it"}


def tried(payload: Payload) -> tuple[AnswerNode, ...]:
    missing = payload.get("missing") or {}
    sides = tuple(
        _side(name, payload[key], payload["inputs"], missing.get(key, "nothing fits")) for key, name in SIDES.items()
    )
    gain = payload["gain"]
    if gain is None:
        return AnswerNode(name="gain", level="metric", shown="none", formula=payload["verdict"]), *sides
    formula = "the step without it over the step with it, both below"
    return metric("gain", f"{float(gain['value']):.2f}x", formula, gain), *sides


def _side(name: str, figures: Payload | None, inputs: Payload, missing: str) -> AnswerNode:
    if figures is None:
        return AnswerNode(name=name, level="metric", shown=missing)
    serving = inputs.get("work") == "serving"
    parts = _room(figures) if serving else _spent(figures)
    opened = AnswerNode(
        name="opened by", level="part", shown=_command(figures, inputs, serving), formula="and gnomon explain"
    )
    time = figures["step_time_s"]
    plan = ", ".join(figures["techniques"]) if serving else _plan(figures, inputs)
    return metric(name, f"{format_duration(time['value'])} a step", plan, time, (*parts, opened))


def _room(figures: Payload) -> tuple[AnswerNode, ...]:
    prompt = figures["prompt_time_s"]
    return (
        AnswerNode(
            name="a prompt",
            level="part",
            shown=format_duration(prompt["value"]),
            provenance=str(prompt["provenance"]),
            source=str(prompt["source"]),
        ),
        AnswerNode(name="weights", level="part", shown=f"{gib(float(figures['weight_bytes']))} GiB a chip"),
        AnswerNode(name="room", level="part", shown=f"{int(figures['sessions']):,} sequences"),
    )


def _spent(figures: Payload) -> tuple[AnswerNode, ...]:
    return (
        AnswerNode(
            name="memory", level="part", shown=f"{gib(float(figures['peak_memory_bytes']))} GiB on the fullest chip"
        ),
        AnswerNode(name="MFU", level="part", shown=f"{float(figures['mfu']):.1%}"),
        AnswerNode(name="cost", level="part", shown=f"{format_money(float(figures['cost_usd']))} a step"),
    )


def _plan(figures: Payload, inputs: Payload) -> str:
    return in_words({**inputs, **figures["degrees"], **figures["settings"], "techniques": figures["techniques"]})


def _command(figures: Payload, inputs: Payload, serving: bool) -> str:
    """What gives the same figures again, in full."""
    names = [part for name in figures["techniques"] for part in ("--with", name)]
    if serving:
        # The step that makes a sequence as long as was asked for has one token less behind it.
        load = ["--on", inputs["on"], "--batch", inputs["batch"], "--context", max(int(inputs["context"]) - 1, 0)]
        return words("gnomon", "predict", inputs["model"], *load, *flag("--dtype", inputs["dtype"]), *names)
    load = ["--on", _taken(figures, inputs)]
    job = same_job({**inputs, "tokens": None, "techniques": figures["techniques"]})
    degrees = [word for name, degree in figures["degrees"].items() if degree > 1 for word in (f"--{name}", degree)]
    return words("gnomon", "simulate", "train", inputs["model"], *load, *degrees, *_settings(figures), *job)


def _taken(figures: Payload, inputs: Payload) -> str:
    """The chips of the plan, which may be fewer than there are."""
    degrees = figures["degrees"]
    ranks = degrees["tp"] * degrees["pp"] * degrees["cp"] * degrees["dp"]
    return f"{str(inputs['on']).rpartition(':')[0] or inputs['on']}:{ranks}"


def _settings(figures: Payload) -> list[Any]:
    """The recipe's words, but for the optimizer, which is the job's."""
    said: list[Any] = []
    for name, value in figures["settings"].items():
        word = name.replace("_", "-")
        if isinstance(value, bool):
            said += [] if value or figures["degrees"]["tp"] == 1 else [f"--no-{word}"]
        elif name != "optimizer" and value not in (0, "none") and (name != "cp_comm" or figures["degrees"]["cp"] > 1):
            said += [f"--{word}", value]
    return said
