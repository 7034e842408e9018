"""Parts of a load as small descriptions, `gamma:cv=3` or `groups=8,tokens=2048`: text to data and back."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import numpy as np

from gnomon.errors import InputError, unknown_name
from gnomon.units import parse_count, parse_duration, parse_whole

PARAMETER = "parameter"
"""The key of a field's `LoadParameter` in its metadata."""
Described = TypeVar("Described", bound="Description")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParameter:
    """What a field of a description may be."""

    kind: str
    """`number`, `whole` or `duration`."""
    low: float
    high: float


def parameter(kind: str, low: float, high: float, default: Any = MISSING) -> Any:
    """A field of a description, from `low` to `high`; without a default it has to be given."""
    made = LoadParameter(kind=kind, low=low, high=high)
    return field(default=default, metadata={PARAMETER: made})


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A part of a load. Subclasses are frozen dataclasses of numbers whose fields are made by `parameter`."""

    NAME: ClassVar[str] = ""
    """What stands before the colon; nothing where its flag says it."""

    @classmethod
    def read(cls: type[Described], text: str, where: str) -> Described:
        """Of `key=value,key=value`. Raises InputError, which names the key."""
        known = {one.name: one for one in fields(cls)}
        given: dict[str, float] = {}
        for key, value in pairs_of(text, where):
            if key not in known:
                raise unknown_name("parameter", key, list(known), where=where, hint=cls.usage())
            if key in given:
                raise InputError(f"the parameter {key} is given twice", where=where)
            given[key] = _value(value, known[key], where)
        for name, one in known.items():
            if one.default is MISSING and name not in given:
                raise InputError(f"{name} is missing", where=where, hint=cls.usage())
        made = cls(**given)
        made.check(where)
        return made

    @classmethod
    def usage(cls) -> str:
        """How one is written, for a hint."""
        written = ",".join(f"{one.name}=…" for one in fields(cls))
        return f"Write {cls.NAME}{':' if cls.NAME and written else ''}{written}."

    def check(self, where: str) -> None:
        """Raise InputError where parameters contradict each other."""

    @property
    def text(self) -> str:
        """As it is written; reading it gives the same description."""
        given = ((one, getattr(self, one.name)) for one in fields(self))
        parts = [f"{one.name}={_written(value, one)}" for one, value in given if value != one.default]
        return ":".join(filter(None, (self.NAME, ",".join(parts))))

    def __str__(self) -> str:
        return self.text

    def __format__(self, how: str) -> str:
        return self.text


def pairs_of(text: str, where: str) -> list[tuple[str, str]]:
    """The keys and values of `key=value,key=value`."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise InputError(f"'{part}' is not key=value", where=where)
        found.append((key.strip(), value.strip()))
    return found


def generator(seed: int, stream: int) -> np.random.Generator:
    """Random numbers of one part of a load; other parts of the same seed have other streams."""
    return np.random.Generator(np.random.PCG64([seed, stream]))


def plain_number(value: float) -> str:
    """All digits that a number has, and no more: `3`, `0.25`."""
    return repr(float(value)).removesuffix(".0")


def _value(text: str, one: Field[Any], where: str) -> float:
    asked: LoadParameter = one.metadata[PARAMETER]
    at = f"{where}, {one.name}"
    value: float
    if asked.kind == "duration":
        value = parse_duration(text, at)
    elif asked.kind == "whole":
        value = parse_whole(text, at, least=int(asked.low))
    else:
        value = parse_count(text, at)
    if not asked.low <= value <= asked.high:
        raise InputError(f"'{text}' is not between {asked.low:g} and {asked.high:g}", where=at)
    return value


def _written(value: Any, one: Field[Any]) -> str:
    asked: LoadParameter = one.metadata[PARAMETER]
    return str(value) if asked.kind == "whole" else plain_number(value) + "s" * (asked.kind == "duration")
