"""Operator tables as columns: a million rows in, a million times out, without a Python object a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.spec.workload import Floats

Price = Callable[[str, str, Mapping[str, Floats], NDArray[np.int64]], tuple[Floats, float, str]]
"""Seconds, spread and provenance of rows of one kind, whose places in the table are handed over too."""
WORDS = ("op", "dtype")


def priced_columns(
    table: Mapping[str, Any], needed: Callable[[str, str, int], tuple[str, tuple[str, ...]]], price: Price
) -> dict[str, Any]:
    """The columns with the times' added. `needed` says of a kind and a format, at a row, which format and columns
    those are."""
    columns = _columns(table)
    size = next(iter(columns.values())).size
    added = {name: np.zeros(size) for name in ("time_us", "low_us", "high_us")}
    told = np.empty(size, dtype=object)
    for kind, given, rows in _groups(columns["op"], columns["dtype"]):
        dtype, names = needed(kind, given, int(rows[0]))
        sizes = {name: _numbers(columns, name, rows) for name in names if name in columns or name != "batch"}
        seconds, spread, source = price(kind, dtype, sizes, rows)
        added["time_us"][rows] = seconds * 1e6
        added["low_us"][rows] = seconds * (1e6 * math.exp(-spread))
        added["high_us"][rows] = seconds * (1e6 * math.exp(spread))
        told[rows] = source
    return columns | added | {"provenance": told}


def _columns(table: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Arrays of one length; a single value stands for all rows."""
    for name in WORDS:
        if name not in table:
            raise InputError(f"has no column '{name}'", where="table", hint="`op` and `dtype` are needed.")
    arrays = {name: np.atleast_1d(np.asarray(values)) for name, values in table.items()}
    size = max(array.size for array in arrays.values())
    for name, array in arrays.items():
        if array.ndim != 1 or array.size not in (1, size):
            raise InputError(f"has the shape {array.shape}, where {size:,} rows are", where=f"column {name}")
    return {name: np.broadcast_to(array, (size,)) for name, array in arrays.items()}


def _groups(kinds: NDArray[Any], dtypes: NDArray[Any]) -> list[tuple[str, str, NDArray[np.int64]]]:
    """Rows of one kind and format together. There are few of these, so each is looked for in turn."""
    found, left = [], np.arange(kinds.size)
    while left.size:
        kind, dtype = kinds[left[0]], dtypes[left[0]]
        same = (kinds[left] == kind) & (dtypes[left] == dtype)
        found.append((str(kind), str(dtype), left[same]))
        left = left[~same]
    return found


def _numbers(columns: Mapping[str, NDArray[Any]], name: str, rows: NDArray[np.int64]) -> Floats:
    if name not in columns:
        raise InputError("is missing", where=f"row {int(rows[0])}, column {name}")
    try:
        return np.asarray(columns[name][rows], np.float64)
    except (TypeError, ValueError):
        raise InputError("holds what is no number", where=f"column {name}") from None
