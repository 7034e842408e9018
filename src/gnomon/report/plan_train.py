"""The text of `gnomon plan train`."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.report.figures import Headline
from gnomon.report.run import in_a_sentence
from gnomon.report.text import Style, labelled, next_steps, plural
from gnomon.report.train import exports, memory_range, run_figures
from gnomon.report.train import figures as step_figures
from gnomon.spec.answers import TrainingPlanReport, TrainingReport
from gnomon.units import format_bytes, format_count, format_duration


def render(answer: TrainingPlanReport, style: Style) -> str:
    best = answer.best
    lines = [style.strong(answer.title), searched_words(answer), "", labelled("best", answer.label, style.strong)]
    lines += [labelled("", text) for text in _figures(best)]
    lines += [labelled(label, text) for label, text in others(answer)]
    return "\n".join([*lines, "", *next_steps(*exports(best), "gnomon explain last")])


def searched_words(answer: TrainingPlanReport) -> str:
    considered, fit, timed = answer.plans_considered, answer.plans_fit, answer.plans_timed
    least, most = (format_bytes(size) for size in answer.shortage_bytes)
    lacking = f" (worst rank short by {least} to {most})" if considered > fit else ""
    return (
        f"{format_count(considered)} plans: {format_count(considered - fit)} do not fit{lacking}, "
        f"{format_count(fit - timed)} pruned by bounds, {format_count(timed)} timed; exact"
    )


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
        yield "idle", f"{plural(idle, 'chip')}: no plan that uses more of them is faster"
