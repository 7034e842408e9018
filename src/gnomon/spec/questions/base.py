"""A question is the input of a command as data; each field says how it is written on a command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from gnomon.errors import InputError, shown
from gnomon.spec.questions.values import check_value
from gnomon.units import parse_count, parse_duration, parse_money, parse_rate, parse_watts, parse_whole

COUNTS = "8k is 8,000 and 8Ki is 8,192."
"""How counts of tokens are read, for the help of their flags."""
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
    """`{settings}`, `{targets}` and `{training_engines}` stand for what the engines say; `cli/engine_words.py` fills
    them in."""
    least: int = 1
    most: int | None = None
    last: bool = False
    """Whether help lists it behind the flags that are not."""

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


def last_flag(name: str, kind: str, metavar: str, help: str) -> Any:
    """A flag that need not be given and that help lists behind the others."""
    return field(default=None, metadata={FLAG: Flag(names=(name,), kind=kind, metavar=metavar, help=help, last=True)})


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
        raise InputError(f"{shown(value)} is not a whole number", where=where)
    return number


def _in_range(value: Any, flag: Flag) -> int:
    """A whole number of a flag's range."""
    number = whole(value, flag.where)
    if number < flag.least:
        raise InputError(f"{shown(number)} is below {flag.least}", where=flag.where)
    if flag.most is not None and number > flag.most:
        raise InputError(f"{shown(number)} is more than {flag.most:,}", where=flag.where)
    return number


def _length(value: Any, flag: Flag) -> int | str:
    """Tokens, or the description of a distribution of them, which is read where the load is made."""
    if isinstance(value, str) and value.strip()[:1].isalpha():
        return value.strip()
    return parse_whole(value, flag.where, least=flag.least, most=flag.most)


NUMBERS: dict[str, Callable[[Any, Flag], Any]] = {
    "whole": _in_range,
    "size": lambda value, flag: parse_whole(value, flag.where, least=flag.least, most=flag.most),
    "rate": lambda value, flag: parse_rate(value, flag.where),
    "count": lambda value, flag: parse_count(value, flag.where),
    "duration": lambda value, flag: parse_duration(value, flag.where),
    "length": lambda value, flag: _length(value, flag),
    "watts": lambda value, flag: parse_watts(value, flag.where),
    "money": lambda value, flag: parse_money(value, flag.where),
}
"""Readers of numbers that come from Python; texts of a command line are read before."""
LATER = ("techniques",)
"""Kinds of values whose reader refuses what they cannot be."""


def _is_default(value: Any, one: Field[Any]) -> bool:
    """Whether a field has the value that it has where it is not given."""
    return type(value) is type(one.default) and bool(value == one.default)


class Question:
    """The input of one command. Subclasses are frozen dataclasses whose fields are made by `flag` and `argument`.

    This is where values come in, from a command line, from Python or from a sweep: one that is not of its field's
    declared type is refused, whatever it would have become further on.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            value, declared, each = getattr(self, one.name), str(one.type), one.metadata.get(FLAG)
            if _is_default(value, one) or (value is None and declared.endswith("None")):
                continue
            if each is not None and each.kind in NUMBERS:
                object.__setattr__(self, one.name, NUMBERS[each.kind](value, each))
            elif each is None or each.kind not in LATER:
                check_value(value, declared, each.where if each else one.name)

    @classmethod
    def flags(cls) -> dict[str, Flag]:
        """The flag of every field, by the field's name."""
        return {one.name: one.metadata[FLAG] for one in fields(cls) if FLAG in one.metadata}  # type: ignore[arg-type]
