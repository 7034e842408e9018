"""Sweep files: a command, what stays fixed, and lists of values, all checked before anything is run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from gnomon.errors import InputError, unknown_name
from gnomon.load.fields import Fields, shown
from gnomon.load.files import MIB, as_path, read_yaml
from gnomon.spec.sweep import Sweep, compact
from gnomon.units import parse_count, parse_whole

MOST_BYTES = 16 * MIB
MOST_QUESTIONS = 10_000_000
FLAGS = {"with": "techniques", "set": "settings", "slug": "name"}
"""Flags that have another name in Python."""
PARTS = ("over", "zip", "each")
"""What has lists: multiplied, advancing together, written out."""
PLAIN = (str, bool, int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a command may be given: type hints by name, and the names it cannot do without."""

    hints: Mapping[str, Any]
    required: tuple[str, ...]


def read_sweep(source: str | Path | Mapping[str, Any], commands: Mapping[str, Parameters]) -> Sweep:
    """The sweep of a file, or of a mapping with the same fields."""
    if isinstance(source, Mapping):
        return _sweep(source, "sweep", commands)
    file = as_path(source)
    return _sweep(read_yaml(file, MOST_BYTES), str(file), commands)


def _sweep(data: Mapping[str, Any], where: str, commands: Mapping[str, Parameters]) -> Sweep:
    data = {part: _named_on(value) for part, value in data.items()}
    fields = Fields(data, where)
    command = " ".join(fields.text("command").split())
    if command not in commands:
        raise unknown_name("command", command, commands, where=fields.spot("command"))
    reader = _Reader(fields, commands[command])
    fixed = reader.mapping(fields.inner("fixed").items(), "fixed")
    axes = [axis for part in data for axis in reader.axes(part)]
    for part in PARTS:
        fields.raw(part, None)
    fields.done()
    found = Sweep(command=command, fixed=fixed, axes=tuple(axes))
    if len(found) > MOST_QUESTIONS:
        sizes = " x ".join(f"{len(axis):,}" for axis in axes)
        hint = "Leave values out, or split it into several sweeps."
        raise InputError(f"{sizes} = {len(found):,} questions are more than {MOST_QUESTIONS:,}", where=where, hint=hint)
    reader.check_complete(fixed, axes, where)
    return found


def _named_on(value: Any) -> Any:
    """A part of the file in which `on` is a name: to YAML 1.1 it is the truth value."""
    if isinstance(value, Mapping):
        return {"on" if key is True else key: item for key, item in value.items()}
    return (
        [_named_on(item) if isinstance(item, Mapping) else item for item in value] if isinstance(value, list) else value
    )


class _Reader:
    """Names and values of one command; a name belongs to one part of the file."""

    def __init__(self, fields: Fields, parameters: Parameters) -> None:
        self._fields, self._parameters = fields, parameters
        self._places: dict[str, str] = {}

    def axes(self, part: str) -> Iterator[tuple[Mapping[str, Any], ...]]:
        """The axes of one part of the file, in the order they are written."""
        if part == "over":
            for given, values in self._fields.inner(part).items().items():
                spot = f"{part}.{given}"
                name = self._named(given, spot)
                yield self._steps([{name: value} for value in self._values(values, name, spot)], spot)
        elif part == "zip":
            groups = self._fields.raw(part, [])
            for place, group in enumerate([groups] if isinstance(groups, Mapping) else self._fields.list(part)):
                yield self._zipped(group, part if isinstance(groups, Mapping) else f"{part}[{place}]")
        elif part == "each":
            entries = self._fields.list(part)
            before = dict(self._places)
            steps = []
            for place, entry in enumerate(entries):
                self._places = dict(before)  # entries may have names in common
                steps.append(self.mapping(entry, f"{part}[{place}]"))
            self._places = before | {name: part for step in steps for name in step}
            yield self._steps(steps, part)

    def mapping(self, data: Any, part: str) -> dict[str, Any]:
        """Names with one value each."""
        found = {}
        for given, value in Fields(data, self._fields.spot(part)).items().items():
            spot = f"{part}.{given}"
            name = self._named(given, spot)
            found[name] = self._value(value, name, spot)
        return found

    def check_complete(self, fixed: Mapping[str, Any], axes: Sequence[Sequence[Mapping[str, Any]]], where: str) -> None:
        """Raise where some question lacks what its command needs."""
        for name in self._parameters.required:
            given = name in fixed or any(all(name in step for step in axis) for axis in axes)
            if not given:
                some = any(name in step for axis in axes for step in axis)
                lacks = "is missing from some entries" if some else "is missing"
                spot = self._fields.spot("each") if some else where
                raise InputError(f"'{name}' {lacks}", where=spot, hint=f"Give it under fixed: {name}: …")

    def _zipped(self, group: Any, part: str) -> tuple[Mapping[str, Any], ...]:
        """Names whose lists advance together."""
        columns: dict[str, list[Any]] = {}
        for given, values in Fields(group, self._fields.spot(part)).items().items():
            spot = f"{part}.{given}"
            name = self._named(given, spot)
            columns[name] = self._values(values, name, spot)
        if len({len(values) for values in columns.values()}) > 1:
            sizes = ", ".join(f"{name} {len(values)}" for name, values in columns.items())
            raise InputError(f"lists that advance together differ in length: {sizes}", where=self._fields.spot(part))
        rows = zip(*columns.values(), strict=True)
        return self._steps([dict(zip(columns, row, strict=True)) for row in rows], part)

    def _steps(self, steps: list[dict[str, Any]], part: str) -> tuple[Mapping[str, Any], ...]:
        """The steps of an axis: at least one, and no two the same."""
        if not steps:
            raise InputError("has no values", where=self._fields.spot(part), hint="Give at least one.")
        seen: dict[str, int] = {}
        for place, step in enumerate(steps):
            first = seen.setdefault(compact(step), place)
            if first != place:
                value = next(iter(step.values())) if len(step) == 1 else step
                message = f"{shown(value)} is given twice, as entries {first + 1} and {place + 1}"
                raise InputError(message, where=self._fields.spot(part))
        return tuple(steps)

    def _named(self, given: str, spot: str) -> str:
        """The parameter that a name of the file means, which no other part of it gives."""
        name, where = given.replace("-", "_"), self._fields.spot(spot)
        hints = self._parameters.hints
        name = FLAGS[name] if name not in hints and FLAGS.get(name) in hints else name
        if name not in hints:
            raise unknown_name("name", given, hints, where=where)
        if name in self._places:
            raise InputError(f"'{name}' is given twice, here and under {self._places[name]}", where=where)
        self._places[name] = spot
        return name

    def _values(self, values: Any, name: str, spot: str) -> list[Any]:
        if not isinstance(values, list):
            hint = f"Write a list, [{values}], or give it under fixed."
            raise InputError(f"{shown(values)} is not a list of values", where=self._fields.spot(spot), hint=hint)
        return [self._value(value, name, f"{spot}[{place}]") for place, value in enumerate(values)]

    def _value(self, value: Any, name: str, spot: str) -> Any:
        return typed(value, self._parameters.hints[name], self._fields.spot(spot))


def typed(value: Any, hint: Any, where: str) -> Any:
    """A value of a file as the type that a parameter has; counts may be written as `8k`, one entry of a list bare."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    origins = {get_origin(kind) or kind for kind in kinds}
    if value is None and NoneType in origins:
        return None
    if isinstance(value, bool) and bool in origins:
        return value
    if isinstance(value, str) and str in origins:
        return _text(value, where)
    if Mapping in origins and isinstance(value, Mapping):
        return _settings(value, where)
    if Sequence in origins and str not in origins and isinstance(value, (str, list)):
        return [_text(one, where) for one in ([value] if isinstance(value, str) else value)]
    if int in origins and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return parse_whole(value, where, least=0)
    if float in origins and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return value if isinstance(value, int) else parse_count(value, where)
    raise InputError(f"{shown(value)} is not {_expected(origins)}", where=where)


WORDS = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Mapping: "a mapping of names to values",
    Sequence: "a list of texts",
}


def _expected(origins: set[Any]) -> str:
    return " or ".join(word for kind, word in WORDS.items() if kind in origins)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InputError(f"{shown(value)} is not a text", where=where)
    return value


def _settings(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    for key, item in value.items():
        plain = isinstance(item, PLAIN) and not (isinstance(item, float) and not math.isfinite(item))
        if not isinstance(key, str) or not plain:
            raise InputError(f"{shown(key)}: {shown(item)} is not a name and a plain value", where=where)
    return dict(value)
