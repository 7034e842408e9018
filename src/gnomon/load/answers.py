"""Answers from their JSON, by the types of their own classes. What no answer can hold is refused by file and field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from gnomon.errors import InputError
from gnomon.load.fields import shown
from gnomon.load.goals import seconds_goal
from gnomon.load.plan import plan_from_dict
from gnomon.spec import Estimate, Goal, Plan, Provenance
from gnomon.spec.answers import (
    Fit,
    JsonAnswer,
    ModulePrediction,
    PlanReport,
    Prediction,
    Result,
    ServingReport,
    TrainingPlanReport,
    TrainingReport,
    Verified,
)
from gnomon.spec.answers.shapes import MOST, OR_EMPTY, NumberRange, Setting
from gnomon.spec.estimate import DRAWS
from gnomon.spec.tried import Tried

HINT = "The answer is damaged: ask for it again."
KINDS: dict[str, type[Result]] = {
    kind.SCHEMA: kind
    for kind in (
        Prediction, Fit, ServingReport, PlanReport, TrainingReport, TrainingPlanReport, Tried, Verified,
    )
}  # fmt: skip
"""Answers that are read back, by their commands."""
AMOUNT = NumberRange()
Read = TypeVar("Read")
EDGE = 3
"""Draws at either end that are as low or as high as a stored interval: its quantiles fall among them."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A value's place: the file or run, and the keys that lead to it."""

    where: str
    path: tuple[str | int, ...] = ()

    def inner(self, key: str | int) -> Spot:
        return Spot(self.where, (*self.path, key))

    @property
    def name(self) -> str:
        keys = (f"[{key}]" if isinstance(key, int) else f".{shown(key)[1:-1]}" for key in self.path)
        return "".join(keys).lstrip(".")

    def damaged(self, what: str) -> InputError:
        where = f"{self.where}, field {self.name}" if self.path else self.where
        return InputError(what, where=where, hint=HINT)


def kind_of(payload: Mapping[str, Any]) -> str:
    """The command whose answer it is, by its schema."""
    return str(payload.get("schema", "")).removeprefix("gnomon.").partition("/")[0]


def answer_from_dict(payload: Mapping[str, Any], where: str = "the answer") -> Result:
    """The answer that `to_dict` wrote; one of a kind that is not read back is known by its JSON alone."""
    kind = KINDS.get(kind_of(payload))
    if kind is None:
        return JsonAnswer(content=payload)
    kind = ModulePrediction if kind is Prediction and "operators" in payload else kind
    _check_numbers(payload, Spot(where))
    found: Result = _object(kind, payload, Spot(where))
    return found


def _check_numbers(value: Any, spot: Spot) -> None:
    """No field of any answer, known or not, holds a number beyond all figures of ours, or none."""
    if isinstance(value, (int, float)) and not abs(value) <= MOST:
        raise spot.damaged(f"{shown(value)} is not a number that an answer has")
    if isinstance(value, (Mapping, list)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            if not isinstance(item, str):
                _check_numbers(item, spot.inner(key))


def _value(hint: Any, value: Any, spot: Spot, bounds: NumberRange = AMOUNT) -> Any:
    """A value as its type has it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(inner[0], inner[1:], value, spot)
    if origin in (Union, UnionType):
        return _union(inner, value, spot)
    if is_typeddict(hint) or (origin is not None and issubclass(origin, Mapping)):
        return _mapping(hint, value, spot)
    if origin is tuple:
        return _tuple(inner, value, spot)
    if hint in READERS:
        return READERS[hint](value, spot, bounds)
    return _object(hint, value, spot) if is_dataclass(hint) else value


def _annotated(hint: Any, marks: tuple[Any, ...], value: Any, spot: Spot) -> Any:
    """A type with what it may hold: bounds of a number, the shape of a mapping, fields that must be there."""
    bounds = next((mark for mark in marks if isinstance(mark, NumberRange)), AMOUNT)
    if OR_EMPTY in marks and value in (None, {}):
        return {}
    shape = next((mark for mark in marks if not isinstance(mark, (NumberRange, tuple, str))), hint)
    found = _value(shape, value, spot, bounds)
    for name in next((mark for mark in marks if isinstance(mark, tuple)), ()):
        if found.get(name) is None:
            raise spot.inner(name).damaged("is missing")
    return found


def _union(options: tuple[Any, ...], value: Any, spot: Spot) -> Any:
    """Null where that is one of them; else the option that it is most like."""
    if value is None and NoneType in options:
        return None
    options = tuple(option for option in options if option is not NoneType)
    if all(map(is_typeddict, options)) and isinstance(value, Mapping):
        return _value(max(options, key=lambda option: len(_hints(option).keys() & value.keys())), value, spot)
    for option in options[:-1]:
        try:
            return _value(option, value, spot)
        except InputError:
            continue
    return _value(options[-1], value, spot)


def _fields(value: Any, spot: Spot, *names: str) -> Mapping[str, Any]:
    """A mapping that has these fields."""
    if not isinstance(value, Mapping):
        raise spot.damaged(f"{shown(value)} is not a mapping of fields")
    for name in names:
        if name not in value:
            raise spot.inner(name).damaged("is missing")
    return value


def _mapping(hint: Any, value: Any, spot: Spot) -> dict[str, Any]:
    value = _fields(value, spot, *sorted(getattr(hint, "__required_keys__", ())))
    if not is_typeddict(hint):
        each = get_args(hint)[1]
        return dict(value) if each is Any else {key: _value(each, item, spot.inner(key)) for key, item in value.items()}
    hints = _hints(hint)
    return {key: _value(hints[key], item, spot.inner(key)) if key in hints else item for key, item in value.items()}


def _tuple(inner: tuple[Any, ...], value: Any, spot: Spot) -> tuple[Any, ...]:
    several = inner[-1] is Ellipsis
    if not isinstance(value, (list, tuple)) or not (several or len(value) == len(inner)):
        raise spot.damaged(f"{shown(value)} is not a list of entries")
    hints = (inner[0],) * len(value) if several else inner
    return tuple(_value(hint, item, spot.inner(at)) for at, (hint, item) in enumerate(zip(hints, value, strict=True)))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _object(kind: Any, value: Any, spot: Spot) -> Any:
    """A dataclass; what is not in the JSON has its default."""
    needed = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
    given, hints = _fields(value, spot, *needed), _hints(kind)
    known = [each.name for each in fields(kind) if each.name in given]
    return kind(**{name: _value(hints[name], given[name], spot.inner(name)) for name in known})


def _number(value: Any, spot: Spot, bounds: NumberRange) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise spot.damaged(f"{shown(value)} is not a number")
    if bounds.least >= 0 and (value < 0 or 0 < value < 1 / MOST):
        raise spot.damaged(f"{shown(value)} is not a number of zero or more")
    if not bounds.least <= value <= bounds.most:
        span = "above zero" if bounds.most == MOST else f"from {bounds.least:g} to {bounds.most:g}"
        raise spot.damaged(f"{shown(value)} is not a number {span}")
    return value


def _whole(value: Any, spot: Spot, bounds: NumberRange) -> int:
    if (number := _number(value, spot, bounds)) != int(number):
        raise spot.damaged(f"{shown(value)} is not a whole number")
    return int(number)


def _text(value: Any, spot: Spot, _: NumberRange) -> str:
    if not isinstance(value, str):
        raise spot.damaged(f"{shown(value)} is not a text")
    return value


def _truth(value: Any, spot: Spot, _: NumberRange) -> bool:
    if not isinstance(value, bool):
        raise spot.damaged(f"{shown(value)} is not true or false")
    return value


def _estimate(value: Any, spot: Spot, bounds: NumberRange) -> Estimate:
    """A stored interval as draws that have it again."""
    value = _fields(value, spot, "value", "low", "high", "provenance", "source")
    low, high = (_number(value[name], spot.inner(name), AMOUNT) for name in ("low", "high"))
    middle = _number(value["value"], spot.inner("value"), bounds)
    if not low <= middle <= high:
        between = f"low {shown(low)} and high {shown(high)}"
        raise spot.inner("value").damaged(f"{shown(middle)} is not between {between}")
    kind = _text(value["provenance"], spot.inner("provenance"), bounds)
    if kind not in list(Provenance):
        raise spot.inner("provenance").damaged(f"{shown(kind)} is not one of {', '.join(Provenance)}")
    exact = low == middle == high
    draws = np.empty(0) if exact else np.array([low] * EDGE + [middle] * (DRAWS - 2 * EDGE) + [high] * EDGE, float)
    return Estimate(middle, draws, Provenance(kind), _text(value["source"], spot.inner("source"), bounds))


def _goal(value: Any, spot: Spot, bounds: NumberRange) -> Goal:
    name, limit = (_fields(value, spot, "name", "limit_s")[key] for key in ("name", "limit_s"))
    _number(limit, spot.inner("limit_s"), bounds)
    return _placed(lambda: seconds_goal(_text(name, spot.inner("name"), bounds), limit, spot.where), spot)


def _plan(value: Any, spot: Spot, _: NumberRange) -> Plan:
    plan = _placed(lambda: plan_from_dict(_fields(value, spot), spot.where), spot)
    _value(Mapping[str, Setting | None], plan.engine.settings, spot.inner("engine").inner("settings"))
    return plan


def _placed(read: Callable[[], Read], spot: Spot) -> Read:
    """What another reader reads, its errors told from the answer's own place."""
    try:
        return read()
    except InputError as error:
        inside = error.where.partition(", field ")[2].replace(", ", ".")
        name = f"{spot.name}.{inside}".rstrip(".")
        if HINT not in error.hint:
            raise InputError(error.message, where=f"{spot.where}, field {name}", hint=HINT) from None
        raise


READERS: dict[Any, Any] = {
    float: _number,
    int: _whole,
    str: _text,
    bool: _truth,
    Estimate: _estimate,
    Goal: _goal,
    Plan: _plan,
}
