"""Operator tables as columns: a million rows in, a million times out, without a Python object a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.planning.operators.price import ADDED, TRUTH, WORDS, OperatorGroup, Pricer, check_results
from gnomon.planning.operators.ranges import SWITCHES
from gnomon.spec.workload import Floats

Rows = NDArray[np.int64]


def priced_columns(table: Mapping[str, Any], pricer: Pricer) -> dict[str, Any]:
    """The columns with the times' added."""
    columns = _columns(table)
    size = next(iter(columns.values())).size
    added: dict[str, NDArray[Any]] = {name: np.zeros(size) for name in ADDED[:3]}
    told = np.empty(size, dtype=object)
    for group, rows in _groups(pricer, columns):
        places = _Places(rows)
        pricer.check(group, places[0])
        priced = pricer.priced(group, sizes_of(group, columns, rows), places)
        told[rows] = priced.pop("provenance")
        for name, values in priced.items():
            added[name][rows] = values
    return columns | added | {"provenance": told}


class _Places:
    """Where rows stand, told when asked: a million texts are not made in case one is needed."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __getitem__(self, index: int) -> str:
        return f"row {int(self._rows[index])}"


def _columns(table: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Arrays of one length; a single value stands for all rows."""
    for name in WORDS[:2]:
        if name not in table:
            raise InputError(f"has no column '{name}'", where="table", hint="`op` and `dtype` are needed.")
    check_results(table, "table")
    arrays = {name: np.atleast_1d(np.asarray(values)) for name, values in table.items()}
    size = 0 if any(array.size == 0 for array in arrays.values()) else max(array.size for array in arrays.values())
    for name, array in arrays.items():
        if array.ndim != 1 or array.size not in (1, size):
            raise InputError(f"has the shape {array.shape}, where {size:,} rows are", where=f"column {name}")
    return {name: np.broadcast_to(array, (size,)) if array.size != size else array for name, array in arrays.items()}


def _groups(pricer: Pricer, columns: Mapping[str, NDArray[Any]]) -> Iterator[tuple[OperatorGroup, Rows]]:
    """Rows that are alike but for their sizes, together and in order."""
    size = columns["op"].size
    codes, meanings = np.zeros(size, np.int64), []
    for name in WORDS:
        found, code = _coded(pricer, name, columns.get(name), size)
        codes = codes * len(found) + code if len(found) > 1 else codes
        meanings.append(found)
    alike = [np.arange(size)] if not codes.any() else _alike(codes)
    for rows in alike:
        if rows.size:
            picked, code = [], int(codes[rows[0]])
            for found in reversed(meanings):
                code, place = divmod(code, len(found))
                picked.append(found[place])
            yield OperatorGroup(*reversed(picked)), rows


def _alike(codes: Rows) -> list[Rows]:
    narrow = codes.astype(np.int16) if codes.max() < 2**15 else codes
    order = np.argsort(narrow, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def _coded(pricer: Pricer, name: str, values: NDArray[Any] | None, size: int) -> tuple[list[Any], Any]:
    """What the words of a column mean, and which of them each row has. There are few, so each is looked for in turn,
    and one that means nothing ends the search."""
    if values is None or not size:
        return [pricer.word(name, "", "row 0") if values is None else ""], 0
    if values.strides == (0,):
        return [pricer.word(name, _text(values[0]), "row 0")], 0
    if values.dtype == object:
        values = np.array([_text(value) for value in values])
    found, code, left = [], np.zeros(size, np.int64), np.arange(size)
    while left.size:
        first = values[left[0]]
        found.append(pricer.word(name, _text(first), f"row {int(left[0])}"))
        rest = values[left]
        same = np.isnan(rest) if first != first else rest == first
        code[left[same]] = len(found) - 1
        left = left[~same]
    return found, code


def _text(value: Any) -> str:
    return "" if value is None or value != value else str(value)


def sizes_of(group: OperatorGroup, columns: Mapping[str, NDArray[Any]], rows: Rows) -> dict[str, Floats]:
    """The sizes of a group's rows; what is optional and empty has its usual value."""
    sizes = {name: _numbers(columns, name, rows) for name in group.needed}
    for name, usual in group.optional.items():
        if name in columns:
            values = _numbers(columns, name, rows)
            sizes[name] = np.where(np.isnan(values), usual, values)
            if np.isnan(sizes[name]).all():
                del sizes[name]
    for name in group.unused:
        if name in columns:
            said = next((row for row in rows if _text(columns[name][row]).strip()), None)
            if said is not None:
                raise group.refusal(name, f"row {int(said)}")
    return sizes


def _numbers(columns: Mapping[str, NDArray[Any]], name: str, rows: Rows) -> Floats:
    if name not in columns:
        raise InputError("is missing", where=f"row {int(rows[0])}, column {name}")
    whole = columns[name]
    values = whole if rows.size == whole.size else whole[rows]
    if values.dtype.kind in "OU":
        known = {"": np.nan} | (TRUTH if name in SWITCHES else {})
        values = np.array([known.get(_text(value).strip().lower(), value) for value in values], dtype=object)
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        found, value = next(((row, value) for row, value in zip(rows, values, strict=True) if not _is_number(value)))
        raise InputError(f"'{_text(value)}' is not a number", where=f"row {int(found)}, column {name}") from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
