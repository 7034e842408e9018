"""Whether the JSON of an answer is intact: every field that is opened is there and holds what it can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.errors import InputError
from gnomon.load.fields import shown

MOST = 1e30
"""More than any figure of ours; its inverse is less than any that is not zero."""
ESTIMATE = {"value", "low", "high", "provenance"}
"""Fields by which an estimate is known."""
Path = tuple[Any, ...]
"""Where a value stands: the path of what holds it, and its key; empty for the answer itself."""


@dataclass(frozen=True, slots=True)
class Optional:
    """A field that may be absent, or null, or both."""

    shape: Any
    absent: bool = True
    null: bool = True


@dataclass(frozen=True, slots=True)
class Filled:
    """A mapping that is empty, or null, or has these fields."""

    shape: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Each:
    """A mapping with keys of its own, every value of one shape."""

    shape: Any


@dataclass(frozen=True, slots=True)
class Some:
    """A list with at least one entry, each of one shape."""

    shape: Any


def check(answer: Any, shape: Any, where: str) -> None:
    """Raise, naming the field, where an answer lacks what its shape asks for, or holds a number that no answer has.

    A shape is a mapping of fields, a list of one shape, one of the classes above, or a function that says what is wrong
    with a value.
    """
    _check_shape(answer, shape, (), where)
    _check_numbers(answer, (), where)


def _damaged(what: str, path: Path, where: str) -> InputError:
    field = ""
    while path:
        path, key = path
        name = f"[{key}]" if isinstance(key, int) else f".{shown(str(key))[1:-1]}"
        field = name + field
    place = f"{where}, field {field.lstrip('.')}" if field else where
    return InputError(what, where=place, hint="The answer is damaged: ask for it again.")


def _check_shape(value: Any, shape: Any, path: Path, where: str) -> None:
    if isinstance(shape, Optional):
        if value is not None or not shape.null:
            _check_shape(value, shape.shape, path, where)
    elif isinstance(shape, Filled):
        if value not in (None, {}):
            _check_shape(value, shape.shape, path, where)
    elif isinstance(shape, (dict, Each)):
        if not isinstance(value, Mapping):
            raise _damaged(f"{shown(value)} is not a mapping of fields", path, where)
        fields = shape if isinstance(shape, dict) else dict.fromkeys(value, shape.shape)
        for key, inner in fields.items():
            if key in value:
                _check_shape(value[key], inner, (path, key), where)
            elif not isinstance(inner, Optional) or not inner.absent:
                raise _damaged("is missing", (path, key), where)
    elif isinstance(shape, (list, Some)):
        if not isinstance(value, list) or (isinstance(shape, Some) and not value):
            raise _damaged(f"{shown(value)} is not a list of entries", path, where)
        inner = shape[0] if isinstance(shape, list) else shape.shape
        for index, item in enumerate(value):
            _check_shape(item, inner, (path, index), where)
    elif fault := shape(value):
        raise _damaged(f"{shown(value)} {fault}", path, where)


def _check_numbers(value: Any, path: Path, where: str) -> None:
    if isinstance(value, Mapping):
        if value.keys() >= ESTIMATE:
            _check_order(value, path, where)
        for key, item in value.items():
            _check_numbers(item, (path, key), where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_numbers(item, (path, index), where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _damaged(f"{shown(value)} is not a number that an answer has", path, where)


def _check_order(estimate: Mapping[str, Any], path: Path, where: str) -> None:
    """The value of an estimate lies between its low and its high."""
    low, value, high = (estimate[name] for name in ("low", "value", "high"))
    for name in ("value", "low", "high"):
        if fault := amount(estimate[name]):
            raise _damaged(f"{shown(estimate[name])} {fault}", (path, name), where)
    if not low <= value <= high:
        between = f"low {shown(low)} and high {shown(high)}"
        raise _damaged(f"{shown(value)} is not between {between}", (path, "value"), where)


def signed(value: Any) -> str:
    """A number of either sign."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "is not a number"
    return "" if abs(value) <= MOST else "is not a number that an answer has"


def amount(value: Any) -> str:
    """A number of zero or more."""
    return signed(value) or ("" if value == 0 or value >= 1 / MOST else "is not a number of zero or more")


def positive(value: Any) -> str:
    """A number above zero."""
    return amount(value) or ("" if value > 0 else "is not a number above zero")


def whole(value: Any) -> str:
    """A whole number of zero or more."""
    return amount(value) or ("" if value == int(value) else "is not a whole number")


def degree(value: Any) -> str:
    """A whole number of one or more, no larger than any count of chips."""
    right = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1e9
    return "" if right else "is not a whole number from 1 to a billion"


def text(value: Any) -> str:
    return "" if isinstance(value, str) else "is not a text"


def truth(value: Any) -> str:
    return "" if isinstance(value, bool) else "is not true or false"


def plain(value: Any) -> str:
    """A text, a number, true or false."""
    return "" if isinstance(value, (str, bool)) else signed(value)
