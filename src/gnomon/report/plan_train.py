"""The text of `gnomon plan train`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.objectives import goal_lines, mixture_lines
from gnomon.report.run import in_a_sentence
from gnomon.report.text import Style, labelled, next_steps, plural
from gnomon.report.train import exports, memory_range, run_figures
from gnomon.report.train import figures as step_figures
from gnomon.spec.answers import TrainingPlanReport, TrainingReport
from gnomon.units import format_bytes, format_count, format_duration


def render(answer: TrainingPlanReport, style: Style) -> str:
    best = answer.best
    lines = [style.strong(answer.title), searched_words(answer), ""]
    lines += [labelled(name, text) for name, text in goal_lines(answer)]
    lines += [labelled("best", answer.label, style.strong)]
    lines += [labelled("", text) for text in _figures(best)]
    lines += [labelled(name, text) for name, text in (*mixture_lines(answer), *others(answer))]
    lines += [labelled("" if place else "searched", text) for place, text in enumerate(axes_lines(answer))]
    return "\n".join([*lines, "", *next_steps(*exports(best), "gnomon explain last")])


def searched_words(answer: TrainingPlanReport) -> str:
    considered, fit, timed = answer.plans_considered, answer.plans_fit, answer.plans_timed
    least, most = (format_bytes(size) for size in answer.shortage_bytes)
    lacking = f" (worst rank short by {least} to {most})" if considered > fit and answer.shortage_bytes[1] else ""
    return (
        f"{format_count(considered)} plans: {format_count(considered - fit)} do not fit{lacking}, "
        f"{format_count(fit - timed)} pruned by bounds, {format_count(timed)} timed; exact"
    )


AXES = {
    "dp_shard": "HSDP shards (0: all ranks)",
    "micro_batch": "micro-batch", "zero": "ZeRO", "recompute": "recompute", "schedule": "", "cp_comm": "KV by",
    "sequence_parallel": "sequence parallel", "expert_tp": "expert TP", "techniques": "with",
}  # fmt: skip
"""What choices are called where it is not their option in capitals."""
NONE = "none"
FEW = 5
"""More numbers than this are told by their ends and how many they are."""
WIDE = 100


def axes_rows(answer: TrainingPlanReport) -> list[tuple[str, str]]:
    """Every choice with its values."""
    return [(_axis_name(name) or name, _values(values)) for name, values in answer.axes.items()]


def axes_lines(answer: TrainingPlanReport) -> list[str]:
    """What the plans differ in, and with which values; then what all of them share."""
    many = [(name, values) for name, values in answer.axes.items() if len(values) > 1]
    one = [
        f"{_axis_name(name)} {_value(values[0])}".strip()
        for name, values in answer.axes.items()
        if len(values) == 1 and values[0] != NONE
    ]
    words = [f"{_axis_name(name)} {_values(values)}".strip() for name, values in many]
    words += [f"all with {', '.join(one)}"] if one and many else []
    return textwrap.wrap("; ".join(words), WIDE, break_long_words=False, break_on_hyphens=False)


def _axis_name(name: str) -> str:
    return AXES.get(name, name.replace("_", " ").upper())


def _values(values: Sequence[Any]) -> str:
    if len(values) > FEW and not isinstance(values[0], str):
        return f"{_value(values[0])} to {_value(values[-1])} ({len(values)} values)"
    return ", ".join(map(_value, values))


def _value(value: Any) -> str:
    return ("off", "on")[value] if isinstance(value, bool) else value if isinstance(value, str) else format_count(value)


def figures(answer: TrainingPlanReport) -> list[Headline]:
    """Those of the best plan's step."""
    return step_figures(answer.best)


def _figures(best: TrainingReport) -> Iterator[str]:
    time, mfu = step_figures(best)[:2]
    shown = [f"{time.value} per step {time.band}".rstrip(), mfu.value]
    shown += list(run_figures(best))[1:] if best.run else []
    yield ", ".join(shown)
    if best.reliability:
        yield in_a_sentence(best.reliability)
    yield memory_range(best)


def others(answer: TrainingPlanReport) -> Iterator[tuple[str, str]]:
    """The runner-up, and chips that no plan makes faster."""
    second = answer.runner_up
    if second:
        yield "runner-up", f"{second['label']}: {format_duration(second['step_time_s'])}, {second['why']}"
    idle = answer.resolved.count - len(answer.best.ranks)
    if idle > 0:
        yield "idle", f"{plural(idle, 'chip')}: no plan that uses more of them is {_better(answer)}"


def _better(answer: TrainingPlanReport) -> str:
    """What a plan of more chips would have to be."""
    words = {"fewest-gpus": "asked for", "cheapest": "cheaper", "most-tokens": "as long a run"}
    return words.get(answer.objective.get("name", ""), "faster")
