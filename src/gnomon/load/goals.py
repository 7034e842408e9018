"""Goals and engine settings as they are written on a command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.spec import Goal
from gnomon.spec.workload import METRICS, STATISTICS
from gnomon.units import parse_duration

GOAL_NAMES = tuple(f"{metric}_{statistic}" for metric in METRICS for statistic in STATISTICS)
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def parse_goals(text: str, where: str = "--slo") -> tuple[Goal, ...]:
    """`ttft_p90=1s,tpot_p90=40ms`; each name once. An empty text is no goal."""
    goals: dict[str, Goal] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, limit = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"'{part}' is not NAME=TIME, as in ttft_p90=1s", where=where)
        if name.lower() in goals:
            raise InputError(f"'{name}' is given twice", where=where)
        goals[name.lower()] = goal(name, limit, where)
    return tuple(goals.values())


def goal(name: str, limit: str | float, where: str) -> Goal:
    """One goal; the limit is a duration with its unit, or a number of seconds."""
    if name.lower() not in GOAL_NAMES:
        raise unknown_name("goal", name, GOAL_NAMES, where=where)
    limit_s = parse_duration(limit, f"{where}, {name}")
    if limit_s <= 0:
        raise InputError(f"'{limit}' is not above zero", where=f"{where}, {name}")
    metric, _, statistic = name.lower().partition("_")
    return Goal(metric, statistic, limit_s)


def parse_settings(pairs: Iterable[str], where: str = "--set") -> dict[str, Any]:
    """`key=value` texts as typed values: whole numbers, numbers, true, false, null, JSON lists and objects, else text.

    Keys keep their words; dashes become underscores, so that an engine's flag can be pasted without its `--`.
    """
    settings: dict[str, Any] = {}
    seen: set[str] = set()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip().removeprefix("--")
        if not equals or not _KEY.fullmatch(key):
            raise InputError(f"'{pair}' is not KEY=VALUE, as in max_num_seqs=256", where=where)
        key = key.replace("-", "_")
        if key.lower() in seen:
            raise InputError(f"'{key}' is set twice", where=where)
        seen.add(key.lower())
        settings[key] = _typed(value.strip())
    return settings


def _typed(text: str) -> Any:
    words = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
