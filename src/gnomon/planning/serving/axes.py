"""What the plans of a serving search differ in, and with which values."""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.planning.serving.evaluator import ServingFigures
from gnomon.planning.serving.task import PlanTask
from gnomon.search import PlanFamily

FURTHER = ("DP", "PP", "EP")
"""Degrees that most spaces leave at 1: an axis where there are several values."""


def axes_of(task: PlanTask, families: Iterable[PlanFamily], *, mixed: bool = False) -> dict[str, tuple[str, ...]]:
    """Every value of chips, degrees, number formats, settings and replicas, in the order of the space."""
    found: dict[str, dict[str, None]] = {}

    def seen(axis: str, value: str) -> None:
        found.setdefault(axis, {})[value] = None

    most = ahead = 0
    for family in families:
        seen("chip", task.chip(family.chip).short)
        seen("TP", str(family.tp))
        for axis, degree in zip(FURTHER, (family.dp, family.pp, family.ep), strict=True):
            seen(axis, str(degree))
        seen("weights", family.dtype)
        labels = {knob.name: knob.label for knob in task.bindings[family.chip].engine.knobs}
        for name, value in reversed(family.settings):
            seen(labels.get(name, f"{name} {{}}").format("").strip(), str(value))
        seen("pools", "aggregated" if family.prefill is None else "prefill and decode")
        most = max(most, family.most)
        ahead = max(ahead, family.prefill.replicas if family.prefill else 0)
    if mixed:
        found["pools"] = {"any number of one kind of replica of every chip": None}
    given = {name: _ordered(values) for name, values in found.items() if name not in FURTHER or len(values) > 1}
    given |= {"replicas": _up_to(most)}
    return given | ({"prefill replicas": _up_to(ahead)} if ahead else {})


def _ordered(values: Iterable[str]) -> tuple[str, ...]:
    """Numbers from the smallest on, words as they come."""
    found = list(values)
    return tuple(sorted(found, key=int)) if all(value.isdigit() for value in found) else tuple(found)


def _up_to(most: int) -> tuple[str, ...]:
    return tuple(str(count) for count in range(1, most + 1))


def limits_of(figures: ServingFigures) -> dict[str, float]:
    """What else than a goal may limit a plan."""
    return {"kv_share": figures.kv_share, "clock": figures.clock, "preemptions": figures.preemptions}
