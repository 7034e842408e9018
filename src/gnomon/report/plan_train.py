"""The text of `gnomon plan train`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.text import Style, chip_count, next_steps, plural
from gnomon.report.train import exports, memory_range, run_figures
from gnomon.report.train import figures as step_figures
from gnomon.units import format_bytes, format_count, format_duration

Payload = Mapping[str, Any]


def render(payload: Payload, style: Style) -> str:
    best = payload["best"]
    lines = [style.strong(payload["title"]), searched_words(payload), "", _line("best", payload["label"], style.strong)]
    lines += [_line("", text) for text in _figures(best)]
    lines += [_line(label, text) for label, text in others(payload)]
    return "\n".join([*lines, "", *next_steps(*exports(best), "gnomon explain last")])


def _line(label: str, text: str, emphasis: Any = str) -> str:
    return f"  {label:<9} {emphasis(text)}"


def searched_words(payload: Payload) -> str:
    considered, fit, timed = (int(payload[name]) for name in ("plans_considered", "plans_fit", "plans_timed"))
    least, most = (format_bytes(size) for size in payload["shortage_bytes"])
    lacking = f" (worst rank short by {least} to {most})" if considered > fit else ""
    return (
        f"{format_count(considered)} plans: {format_count(considered - fit)} do not fit{lacking}, "
        f"{format_count(fit - timed)} pruned by bounds, {format_count(timed)} timed; exact"
    )


def figures(payload: Payload) -> list[Headline]:
    """Those of the best plan's step."""
    return step_figures(payload["best"])


def _figures(best: Payload) -> Iterator[str]:
    time, mfu = step_figures(best)[:2]
    shown = [f"{time.value} a step {time.band}".rstrip(), mfu.value]
    shown += list(run_figures(best))[1:] if best["run"] else []
    yield ", ".join(shown)
    yield memory_range(best)


def others(payload: Payload) -> Iterator[tuple[str, str]]:
    """The runner-up, and chips that no plan makes faster."""
    second = payload["runner_up"]
    if second:
        yield "runner-up", f"{second['label']}: {format_duration(second['step_time_s'])}, {second['why']}"
    idle = chip_count(payload["inputs"]["cluster"]) - len(payload["best"]["ranks"])
    if idle > 0:
        yield "idle", f"{plural(idle, 'chip')}: no plan that uses more of them is quicker"
