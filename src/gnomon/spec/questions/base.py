"""A question is the input of a command as data; each field says how it is written on a command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from gnomon.errors import InputError
from gnomon.units import parse_count, parse_rate, parse_watts, parse_whole

FLAG = "flag"
"""The key of a field's `Flag` in its metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """How a field of a question is written, read and explained."""

    names: tuple[str, ...]
    """As typed, `--kv-dtype`; none of an argument that is known by its place."""
    kind: str
    """Which values it takes: `whole`, `rate`, `text`, `dtype`, `settings`, …; `cli/generate.py` lists their readers."""
    metavar: str
    help: str
    least: int = 1
    most: int | None = None

    @property
    def where(self) -> str:
        """What an error calls it."""
        return self.names[0].partition("/")[0] if self.names else self.metavar


def flag(
    name: str, kind: str, metavar: str, help: str, *, default: Any = MISSING, least: int = 1, most: int | None = None
) -> Any:
    """A field that is a flag; without a default it has to be given."""
    made = Flag(names=(name,), kind=kind, metavar=metavar, help=help, least=least, most=most)
    return field(default=default, metadata={FLAG: made})


def argument(kind: str, metavar: str, help: str) -> Any:
    """A field that is known by its place behind the command."""
    return field(metadata={FLAG: Flag(names=(), kind=kind, metavar=metavar, help=help)})


def whole(value: Any, where: str) -> int:
    """A whole number, however it came: an int, a NumPy one, 4.0."""
    try:
        number = int(value)
        same = number == value and not isinstance(value, (bool, str))
    except (TypeError, ValueError, OverflowError):
        same = False
    if not same:
        raise InputError(f"'{value}' is not a whole number", where=where)
    return number


NUMBERS: dict[str, Callable[[Any, Flag], Any]] = {
    "whole": lambda value, flag: whole(value, flag.where),
    "size": lambda value, flag: parse_whole(value, flag.where, least=flag.least, most=flag.most),
    "rate": lambda value, flag: parse_rate(value, flag.where),
    "count": lambda value, flag: parse_count(value, flag.where),
    "watts": lambda value, flag: parse_watts(value, flag.where),
}
"""Readers of numbers that come from Python; texts of a command line are read before."""


class Question:
    """The input of one command. Subclasses are frozen dataclasses whose fields are made by `flag` and `argument`."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, each in type(self).flags().items():
            value = getattr(self, name)
            if each.kind in NUMBERS and value is not None:
                object.__setattr__(self, name, NUMBERS[each.kind](value, each))

    @classmethod
    def flags(cls) -> dict[str, Flag]:
        """The flag of every field, by the field's name."""
        return {one.name: one.metadata[FLAG] for one in fields(cls) if FLAG in one.metadata}  # type: ignore[arg-type]
