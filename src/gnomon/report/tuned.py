"""The text of `gnomon tune`: what runs now, the single changes that help most, and the best plan on the same chips."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.report.text import INDENT, Style, headed, known, labelled, next_steps, plural
from gnomon.spec.answers import PlanScore
from gnomon.spec.tuned import PlanChange, TunedPlan
from gnomon.units import format_duration, format_money, format_rate

MOST_CHANGES = 8
SAME = 0.005


def render(answer: TunedPlan, style: Style) -> str:
    lines = [style.strong(answer.title), "", labelled("now", _told(answer.now), style.strong), *_goals(answer), ""]
    lines += [*_changes(answer, style), ""]
    lines += [*_best(answer, style), ""]
    return "\n".join([*lines, *next_steps(*_next(answer))])


def _goals(answer: TunedPlan) -> Iterator[str]:
    """What the running plan leaves of each goal."""
    for goal in answer.goals:
        margin = known(answer.now.margin.get(goal.name))
        if margin is not None:
            left = f"{margin:.0%} below" if margin >= 0 else f"{-margin:.0%} above"
            yield labelled("", f"{goal.name} {left} its limit of {format_duration(goal.limit_s)}")


def _told(score: PlanScore) -> str:
    times = [f"{name.upper()} p90 {_time(score, name)}" for name in ("ttft", "tpot")]
    return "   ".join([score.label, f"{format_money(score.usd_h)}/h", *times, _held(score)])


def _time(score: PlanScore, metric: str) -> str:
    seconds = known((score.ttft_s if metric == "ttft" else score.tpot_s).get("p90"))
    return "-" if seconds is None else format_duration(seconds)


def _held(score: PlanScore) -> str:
    most = known(score.max_rate_per_s)
    upto = f"up to {format_rate(most)}" if most else "at no rate"
    return f"meets the goals {upto}" if score.feasible else f"misses the goals; meets them {upto}"


def _changes(answer: TunedPlan, style: Style) -> Iterator[str]:
    shown = answer.changes[:MOST_CHANGES]
    if shown:
        head = ("single changes that help", "price", "highest rate", "TTFT p90", "TPOT p90", "")
        yield from headed([head, *map(_row, shown)], "<>>>><", style)
    else:
        yield f"{INDENT}no single change helps"
    more = len(answer.changes) - len(shown)
    parts = [f"{more} more that help"] if more else []
    parts += [f"{answer.no_benefit} of no benefit"] if answer.no_benefit else []
    parts += [f"{answer.unfit} without room for a request"] if answer.unfit else []
    parts += [f"{answer.refused} refused by the engine or the chip"] if answer.refused else []
    yield f"{INDENT}{plural(answer.tried, 'change')} simulated" + (f": {', '.join(parts)}" if parts else "")


def _row(change: PlanChange) -> tuple[str, ...]:
    score = change.score
    price = "equal" if abs(change.price - 1) < SAME else f"{change.price - 1:+.0%}"
    rate = format_rate(score.max_rate_per_s) if score.max_rate_per_s else "-"
    rate += f" ({change.rate:.2f}x)" if change.rate else ""
    return change.what, price, rate, _time(score, "ttft"), _time(score, "tpot"), _flags(change)


def _flags(change: PlanChange) -> str:
    return ", ".join([*change.flags, *(f"no {name}" for name in change.dropped)])


def _best(answer: TunedPlan, style: Style) -> Iterator[str]:
    if answer.best is None or answer.best_change is None:
        yield labelled("best", f"no plan on these chips: {answer.why_no_best}")
        return
    if answer.best.label == answer.now.label and not _flags(answer.best_change):
        yield labelled("best", "what runs now is the best plan on these chips")
        return
    yield labelled("best", f"{_told(answer.best)}, of a search on the same chips", style.strong)
    if flags := _flags(answer.best_change):
        yield labelled("", flags)


def _next(answer: TunedPlan) -> list[str]:
    return ["gnomon export last", "gnomon history"] if answer.best else ["gnomon history"]
