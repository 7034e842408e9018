"""Goals beside the figures that meet or miss them, and beside the intervals of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gnomon.spec import Goal
from gnomon.spec.answers.serving import Band, GoalResult


def with_bands(results: Iterable[GoalResult], bands: Mapping[str, Mapping[str, Band]]) -> tuple[GoalResult, ...]:
    """Goals of a simulated load; of each whether the interval of its figure crosses it."""
    return tuple(_beside(one, bands) for one in results)


def _beside(one: GoalResult, bands: Mapping[str, Mapping[str, Band]]) -> GoalResult:
    metric, _, statistic = one["goal"].partition("_")
    low, high = bands.get(f"{metric}_s", {}).get(statistic) or (None, None)
    return _crossed(one, low, high)


def of_plan(
    goals: Iterable[Goal], times: Mapping[str, Mapping[str, float]], predicted: Mapping[str, Any]
) -> tuple[GoalResult, ...]:
    """Goals of a plan, by its times and by their estimates where they are known."""
    found = []
    for goal in goals:
        value = times.get(f"{goal.metric}_s", {}).get(goal.statistic)
        drawn = predicted.get(f"{goal.metric}_s", {}).get(goal.statistic)
        met = value is None or not value > goal.limit_s
        plain = GoalResult(goal=goal.name, limit_s=goal.limit_s, value_s=value, met=met)
        found.append(_crossed(plain, *((drawn.low, drawn.high) if drawn else (None, None))))
    return tuple(found)


def _crossed(one: GoalResult, low: float | None, high: float | None) -> GoalResult:
    if low is None or high is None:
        return {**one, "crosses": False}
    return {**one, "low_s": low, "high_s": high, "crosses": low <= one["limit_s"] < high}
