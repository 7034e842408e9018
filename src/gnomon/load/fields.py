"""Typed reading of a mapping from outside; every error names the file and the field."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gnomon.errors import InputError
from gnomon.errors import shown as shown

LARGEST = 2**31
"""More than any count or width of a model."""
_MISSING: Any = object()
_EXPONENT = re.compile(r"[+-]?\d{1,20}(\.\d{0,20})?[eE][+-]?\d{1,3}", re.ASCII)


class Fields:
    """A mapping whose fields are taken one by one; what was not taken is unknown.

    A field that stands as null counts as missing, as config.json writes it.
    """

    def __init__(self, data: Any, where: str, path: str = "") -> None:
        self._where, self._path = where, path
        if not isinstance(data, Mapping):
            raise InputError(f"{shown(data)} is not a mapping of fields", where=self.spot(""))
        strange = [key for key in data if not isinstance(key, str)]
        if strange:
            raise InputError(f"the key {shown(strange[0])} is not a text", where=self.spot(""))
        self._data: Mapping[str, Any] = data
        self._taken: dict[str, None] = {}

    def spot(self, key: str) -> str:
        """Where a field stands, as an error says it."""
        name = ".".join(filter(None, [self._path, key]))
        return f"{self._where}, field {name}" if name else self._where

    def raw(self, key: str, default: Any = _MISSING) -> Any:
        self._taken[key] = None
        value = self._data.get(key)
        if value is None:
            if default is _MISSING:
                raise InputError("is missing", where=self.spot(key), hint=self._misspelt(key))
            return default
        return value

    def _misspelt(self, key: str) -> str:
        """What stands there instead, where it looks like a slip."""
        others = [other for other in self._data if other not in self._taken]
        near = [other for other in others if other.startswith(key)]
        near += difflib.get_close_matches(key, others, n=1, cutoff=0.85)
        return f"There is '{near[0]}': did you mean '{key}'?" if near else ""

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def text(self, key: str, default: Any = _MISSING, *, longest: float = math.inf) -> str:
        value = self.raw(key, default)
        if not self.has(key):
            return str(value)
        if not isinstance(value, str):
            hint = f'Write it in quotes: "{value}".' if isinstance(value, (int, float)) else ""
            raise InputError(f"{shown(value)} is not a text", where=self.spot(key), hint=hint)
        if not value.strip():
            raise InputError("is empty", where=self.spot(key))
        if not value.isprintable():
            hint = "In YAML `>-` makes one line of several." if "\n" in value else ""
            raise InputError(f"{shown(value)} has characters that are not printed", where=self.spot(key), hint=hint)
        if len(value) > longest:
            message = f"{shown(value)} has {len(value):,} letters, more than {longest:,.0f}"
            raise InputError(message, where=self.spot(key))
        return value

    def check_schema(self, known: str) -> None:
        """Raise where the field `schema` is not the known one."""
        if (schema := self.text("schema")) != known:
            raise InputError(f"'{schema}' is not {known}", where=self.spot("schema"))

    def whole(self, key: str, default: Any = _MISSING, *, least: int = 1, most: int = LARGEST) -> int:
        value = self.raw(key, default)
        if not self.has(key) or (type(value) is int and value == default):  # a default may be given, whatever it is
            return int(value)
        value = as_number(value)
        if isinstance(value, float) and value.is_integer() and isinstance(self._data[key], str):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            kind = "a positive whole number" if least == 1 else f"a whole number of at least {least}"
            raise InputError(f"{shown(value)} is not {kind}", where=self.spot(key))
        if value > most:
            raise InputError(f"{shown(value)} is more than {most}", where=self.spot(key))
        return value

    def number(self, key: str, default: Any = _MISSING, *, most: float = math.inf) -> float:
        """A finite number above zero."""
        value = self.raw(key, default)
        if not self.has(key):
            return float(value)
        value = as_number(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise InputError(f"{shown(value)} is not a number above zero", where=self.spot(key))
        if value > most:
            raise InputError(f"{shown(value)} is more than {most:g}", where=self.spot(key))
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{shown(value)} is not true or false", where=self.spot(key))
        return value

    def list(self, key: str) -> list[Any]:
        value = self.raw(key, [])
        if not isinstance(value, list):
            raise InputError(f"{shown(value)} is not a list", where=self.spot(key))
        return value

    def inners(self, key: str) -> Iterator[Fields]:
        """The fields of each mapping of a list."""
        path = ".".join(filter(None, [self._path, key]))
        for place, data in enumerate(self.list(key)):
            yield Fields(data, self._where, f"{path}[{place}]")

    def inner(self, key: str) -> Fields:
        """The fields of a nested mapping; empty where it is missing."""
        return Fields(self.raw(key, {}), self._where, ".".join(filter(None, [self._path, key])))

    def item(self, key: str, place: int) -> Fields:
        """The fields of one entry of a list."""
        name = ".".join(filter(None, [self._path, f"{key}[{place}]"]))
        return Fields(self.list(key)[place], self._where, name)

    def filled(self, defaults: Mapping[str, Any]) -> Fields:
        """These fields, with defaults for those that are missing."""
        given = {key: value for key, value in self._data.items() if value is not None}
        return Fields(dict(defaults) | given, self._where, self._path)

    def items(self) -> dict[str, Any]:
        """Everything, for a mapping whose keys are free."""
        self._taken.update(dict.fromkeys(self._data))
        return dict(self._data)

    def done(self) -> None:
        """Refuse fields that nothing asked for."""
        unknown = [key for key in self._data if key not in self._taken]
        if unknown:
            near = [key for key in self._taken if key.startswith(unknown[0])]
            near += difflib.get_close_matches(unknown[0], self._taken, n=1, cutoff=0.5)
            hint = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(self._taken)}."
            raise InputError("unknown field", where=self.spot(shown(unknown[0]).strip("'")), hint=hint)


def as_number(value: Any) -> Any:
    """A number that YAML takes for a text, because its exponent has no sign or its digits no dot: `6.7e12`, `1e3`."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value
