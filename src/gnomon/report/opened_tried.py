"""A tried idea as a tree of nodes: its gain, and the two plans that it is the ratio of."""

from __future__ import annotations

from typing import Any

from gnomon.report.text import flag, gib, words
from gnomon.report.train import same_job
from gnomon.report.tried import Side, plan_words, sides
from gnomon.spec.answers import AnswerNode
from gnomon.spec.tried import Tried
from gnomon.units import format_duration, format_money


def tried(answer: Tried) -> tuple[AnswerNode, ...]:
    both = tuple(
        _side(f"{name} it", side, answer.inputs, missing or "nothing fits") for name, missing, side in sides(answer)
    )
    gain = answer.gain
    if gain is None:
        return AnswerNode.metric("gain", "none", answer.verdict), *both
    formula = "the step without it over the step with it, both below"
    return AnswerNode.metric("gain", f"{gain.value:.2f}x", formula, gain), *both


def _side(name: str, figures: Side | None, inputs: Side, missing: str) -> AnswerNode:
    if figures is None:
        return AnswerNode.metric(name, missing)
    serving = "prompt_time_s" in figures
    parts = _room(figures) if serving else _spent(figures)
    opened = AnswerNode(name="opened by", shown=_command(figures, inputs, serving), formula="and gnomon explain")
    time = figures["step_time_s"]
    plan = ", ".join(figures["techniques"]) if serving else plan_words(figures, inputs)
    return AnswerNode.metric(name, f"{format_duration(time.value)} per step", plan, time, (*parts, opened))


def _room(figures: Side) -> tuple[AnswerNode, ...]:
    prompt = figures["prompt_time_s"]
    origin = {"provenance": str(prompt.provenance), "source": prompt.source}
    return (
        AnswerNode(name="per prompt", shown=format_duration(prompt.value), **origin),
        AnswerNode(name="weights", shown=f"{gib(figures['weight_bytes'])} GiB a chip"),
        AnswerNode(name="room", shown=f"{figures['sessions']:,} sequences"),
    )


def _spent(figures: Side) -> tuple[AnswerNode, ...]:
    return (
        AnswerNode(name="memory", shown=f"{gib(figures['peak_memory_bytes'])} GiB on the fullest chip"),
        AnswerNode(name="MFU", shown=f"{figures['mfu']:.1%}"),
        AnswerNode(name="cost", shown=f"{format_money(figures['cost_usd'])} per step"),
    )


def _command(figures: Side, inputs: Side, serving: bool) -> str:
    """What gives the same figures again, in full."""
    names = [part for name in figures["techniques"] for part in ("--with", name)]
    if serving:
        # The step that makes a sequence as long as was asked for has one token less behind it.
        load = ["--on", inputs["on"], "--batch", inputs["batch"], "--context", max(inputs["context"] - 1, 0)]
        return words("gnomon", "predict", inputs["model"], *load, *flag("--dtype", inputs["dtype"]), *names)
    load = ["--on", _taken(figures, inputs)]
    job = same_job({**inputs, "tokens": None, "techniques": figures["techniques"]})
    degrees = [word for name, degree in figures["degrees"].items() if degree > 1 for word in (f"--{name}", degree)]
    return words("gnomon", "simulate", "train", inputs["model"], *load, *degrees, *_settings(figures), *job)


def _taken(figures: Side, inputs: Side) -> str:
    """The chips of the plan, which may be fewer than there are."""
    degrees = figures["degrees"]
    ranks = degrees["tp"] * degrees["pp"] * degrees["cp"] * degrees["dp"]
    return f"{str(inputs['on']).rpartition(':')[0] or inputs['on']}:{ranks}"


def _settings(figures: Side) -> list[Any]:
    """The recipe's words, but for the optimizer, which is the job's."""
    said: list[Any] = []
    for name, value in figures["settings"].items():
        word = name.replace("_", "-")
        if isinstance(value, bool):
            said += [] if value or figures["degrees"]["tp"] == 1 else [f"--no-{word}"]
        elif name != "optimizer" and value not in (0, "none") and (name != "cp_comm" or figures["degrees"]["cp"] > 1):
            said += [f"--{word}", value]
    return said
