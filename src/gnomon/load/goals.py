"""Goals and engine settings as they are written on a command line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.load.fields import shown
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


def goal(name: str, limit: Any, where: str) -> Goal:
    """One goal; the limit is a duration with its unit, on a command line, in a file and in Python alike."""
    spot = f"{where}, {name}"
    _check_name(name, where)
    if isinstance(limit, str):
        return _checked(name, parse_duration(limit, spot), where)
    if isinstance(limit, bool) or not isinstance(limit, Real) or not _finite(limit):
        raise InputError(f"{shown(limit)} is not a duration", where=spot, hint="Write it as 50ms or 1s.")
    raise InputError(f"{shown(limit)} has no unit", where=spot, hint=f"Write '{limit}ms' or '{limit}s'.")


def seconds_goal(name: str, limit_s: Any, where: str) -> Goal:
    """A goal whose limit Gnomon wrote as a number of seconds, as JSON has it; a text with a unit is understood too."""
    return _checked(name, parse_duration(limit_s, f"{where}, {name}"), where)


def goals_of(given: str | Sequence[Goal] | Mapping[str, str] | None, where: str = "slo") -> tuple[Goal, ...]:
    """Goals as Python gives them: a text as on the command line, a mapping of names to durations, or `Goal` objects.

    Objects are checked again: a limit of nothing, or twice the same name, is a slip.
    """
    if given is None or isinstance(given, str):
        return parse_goals(given or "")
    if isinstance(given, Mapping):
        found = tuple(goal(name, limit, where) for name, limit in given.items())
    else:
        found = tuple(_checked(one.name, one.limit_s, where) for one in given)
    names = [one.name for one in found]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise InputError(f"'{repeated}' is given twice", where=where)
    return found


def duration_text(seconds: float) -> str:
    """Seconds as a text that `parse_duration` reads back to the very same number.

    >>> duration_text(0.05), duration_text(1.0), duration_text(1 / 3)
    ('50ms', '1s', '0.3333333333333333s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        text = f"{seconds / scale:.6g}{unit}"
        if parse_duration(text) == seconds and (unit == "ms" or seconds >= 1):
            return text
    return f"{seconds!r}s"


def _finite(number: Any) -> bool:
    return bool(-math.inf < number < math.inf)


def _check_name(name: str, where: str) -> None:
    if name.lower() not in GOAL_NAMES:
        raise unknown_name("goal", name, GOAL_NAMES, where=where)


def _checked(name: str, limit_s: float, where: str) -> Goal:
    _check_name(name, where)
    if not 0 < limit_s < math.inf:
        raise InputError(f"{shown(limit_s)} s is not above zero", where=f"{where}, {name}")
    metric, _, statistic = name.lower().partition("_")
    return Goal(metric, statistic, float(limit_s))


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
            raise InputError(f"'{pair}' is not KEY=VALUE, as in {_example()}", where=where)
        key = key.replace("-", "_")
        if key.lower() in seen:
            raise InputError(f"'{key}' is set twice", where=where)
        seen.add(key.lower())
        settings[key] = _typed(value.strip())
    return settings


def _example() -> str:
    """A setting of the engine that serves where none is named."""
    from gnomon.engines import engine
    from gnomon.spec.plan import DEFAULT_ENGINE

    return ", ".join(f"{name}={value}" for name, value in engine(DEFAULT_ENGINE).settings_for(sequences=256).items())


def _typed(text: str) -> Any:
    words = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
