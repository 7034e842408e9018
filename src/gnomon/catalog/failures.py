"""Published training runs: how often they failed, and how much of their time counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from gnomon.catalog.base import fold
from gnomon.catalog.book import Book
from gnomon.errors import unknown_name
from gnomon.spec.reliability import FailureRate, InterruptedRun
from gnomon.units import DAY_S, HOUR_S

DEFAULT = "llama-3"
"""The rate that is taken where none is given: the one of a long run whose every interruption is counted."""
RATE_HINT = "Write a rate as 2e-5/gpu-hour or 6.5/1000-node-days."
NODE = 8
"""GPUs of the nodes that rates per node are of."""


def published_runs() -> tuple[InterruptedRun, ...]:
    return tuple(_run(name) for name in _book().names)


def failure_rate(name: str) -> FailureRate:
    """The rate of a published run. Another cluster's is off by what the published ones differ by."""
    found = _book().find(name)
    rates = {run.name: run.per_gpu_hour for run in published_runs() if run.per_gpu_hour}
    if found not in rates:
        raise unknown_name("published failure rate", name, ["default", *rates], hint=RATE_HINT)
    run, usual = _run(found), _run(DEFAULT)
    others = [math.log(rate / rates[found]) for other, rate in rates.items() if other != found]
    hardware = run.hardware if run.hardware is not None else usual.hardware
    return FailureRate(
        name=found,
        per_gpu_hour=run.per_gpu_hour,
        hardware=hardware or 0.0,
        spread=math.sqrt(sum(one**2 for one in others) / len(others)),
        source=run.source,
    )


@cache
def _book() -> Book:
    return Book("failures", fold)


@cache
def _run(name: str) -> InterruptedRun:
    entry = _book().entry(name)
    effective: Mapping[str, Any] = entry.get("effective") or {}
    return InterruptedRun(
        name=name,
        title=entry["title"],
        gpus=entry.get("gpus", 0),
        per_gpu_hour=_per_gpu_hour(entry),
        failures=entry.get("failures", 0),
        days=entry.get("days", 0.0),
        hardware=entry.get("hardware"),
        effective=effective.get("share"),
        kind=effective.get("kind", ""),
        how=effective.get("how", ""),
        recovery=dict(entry.get("recovery") or {}),
        known=dict(entry["known"]),
        source=f"{entry['source']} ({entry['date']})",
        note=entry.get("note", ""),
    )


def _per_gpu_hour(entry: Mapping[str, Any]) -> float:
    if "per_1000_node_days" in entry:
        return float(entry["per_1000_node_days"]) / 1000 / NODE / (DAY_S / HOUR_S)
    return entry["failures"] / (entry["gpus"] * entry["days"] * DAY_S / HOUR_S) if "failures" in entry else 0.0
