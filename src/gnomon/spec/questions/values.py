"""Whether a value is what a field of a question is declared to be: texts are not blank, members of lists count too."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from numbers import Real
from pathlib import PurePath
from typing import Any

from gnomon.errors import InputError, shown

ALIASES = {"Goals": "str | Sequence[Goal] | Mapping[str, str]"}
"""Names of annotations that stand for others."""
EXPECTED = {
    "str": "a text",
    "Path": "a path",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "Callable": "a function",
}
"""What a plain type is called in an error; a class of Gnomon's own by its name."""
LISTED = {"str": "texts", "float": "numbers", "Goal": "goals", "Mapping[str, Any]": "rows"}
EMPTY = "Give a value, or leave it out."


def check_value(value: Any, declared: str, where: str) -> None:
    """Raise InputError, which says what is expected, unless the value is of one of the declared types."""
    kinds = _kinds(declared)
    if any(_is(value, kind) for kind in kinds):
        return
    if isinstance(value, str) and not value.strip() and any(kind == "str" for kind, _ in kinds):
        raise InputError("is empty", where=where, hint=EMPTY)
    words = [_expected(kind) for kind in kinds if kind[0] != "None"]
    raise InputError(f"{_quoted(value)} is not {' or '.join(words)}", where=where)


_Kind = tuple[str, str]
"""A type by name, and what its members are, as annotations write it: `Sequence` and `str`."""


@cache
def _kinds(declared: str) -> tuple[_Kind, ...]:
    """The alternatives of an annotation."""
    found: list[_Kind] = []
    depth = begin = 0
    for place, letter in enumerate(f"{declared}|"):
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            part = declared[begin:place].strip()
            name, _, inner = part.partition("[")
            found += _kinds(ALIASES[part]) if part in ALIASES else [(name, inner.removesuffix("]"))]
            begin = place + 1
    return tuple(found)


def _is(value: Any, kind: _Kind) -> bool:
    name, inner = kind
    if name in _PLAIN:
        return _PLAIN[name](value)
    if name == "Mapping":
        return isinstance(value, Mapping) and all(_text(key) for key in value)
    if name in ("Sequence", "tuple"):
        members = _kinds(inner.removesuffix(", ..."))
        listed = isinstance(value, Collection) and not isinstance(value, _NO_LISTS)
        return listed and all(any(_is(one, member) for member in members) for one in value)
    if name == "Iterable":  # what it holds is checked by whoever goes over it
        return isinstance(value, Iterable) and not isinstance(value, _NO_LISTS)
    return any(one.__name__ == name and one.__module__.startswith("gnomon.") for one in type(value).__mro__)


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False


_NO_LISTS = (str, bytes, bytearray, Mapping)
_PLAIN: Mapping[str, Callable[[Any], bool]] = {
    "Any": lambda value: True,
    "None": lambda value: value is None,
    "str": _text,
    "Path": lambda value: isinstance(value, PurePath),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: _number(value) and value == int(value),
    "float": _number,
    "Callable": callable,
}


def _expected(kind: _Kind) -> str:
    name, inner = kind
    if name == "Mapping":
        return "a mapping of names to values"
    if name in ("Sequence", "Iterable", "tuple"):
        return f"a list of {LISTED.get(inner, 'values')}"
    return EXPECTED.get(name, f"a {name}")


def _quoted(value: Any) -> str:
    try:
        return shown(value)
    except Exception:  # somebody's own object that cannot be printed, or a number of thousands of digits
        return f"this {type(value).__name__}"
