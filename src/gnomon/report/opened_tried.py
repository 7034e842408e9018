"""A tried idea as a tree of nodes: its gain, and the two plans that it is the ratio of."""

from __future__ import annotations

from gnomon.report.text import flag, gib, words
from gnomon.report.train import described, simulated_again
from gnomon.report.tried import Side, plan_of, sides
from gnomon.spec.answers import AnswerNode
from gnomon.spec.tried import TechniqueComparison
from gnomon.units import format_duration, format_money


def tried(answer: TechniqueComparison) -> tuple[AnswerNode, ...]:
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
    plan = ", ".join(figures["techniques"]) if serving else described(plan_of(figures, inputs))
    return AnswerNode.metric(name, f"{format_duration(time.value)} per step", plan, time, (*parts, opened))


def _room(figures: Side) -> tuple[AnswerNode, ...]:
    prompt = figures["prompt_time_s"]
    origin = {"provenance": str(prompt.provenance), "source": prompt.source}
    return (
        AnswerNode(name="per prompt", shown=format_duration(prompt.value), **origin),
        AnswerNode(name="weights", shown=f"{gib(figures['weight_bytes'])} GiB per chip"),
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
    if serving:
        names = [part for name in figures["techniques"] for part in ("--with", name)]
        # The step that makes a sequence as long as was asked for has one token less behind it.
        load = ["--on", inputs["on"], "--batch", inputs["batch"], "--context", max(inputs["context"] - 1, 0)]
        return words("gnomon", "predict", inputs["model"], *load, *flag("--dtype", inputs["dtype"]), *names)
    degrees = figures["degrees"]
    ranks = degrees["tp"] * degrees["pp"] * degrees["cp"] * degrees["dp"]  # perhaps fewer than there are
    chips = f"{inputs['on'].rpartition(':')[0] or inputs['on']}:{ranks}"
    return simulated_again(plan_of(figures, inputs), chips)
