"""Single operators, priced row by row: a table in, the same table with times out."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from gnomon.api.ops_columns import priced_columns
from gnomon.cost.machine import Machine, known_kinds
from gnomon.cost.profile import Family, profile_for
from gnomon.cost.rows import COLUMNS, shape_of
from gnomon.errors import InputError, unknown_name
from gnomon.graph.dtypes import width
from gnomon.load import parse_pool
from gnomon.load.files import check_regular
from gnomon.paths import write_text
from gnomon.spec import Pool
from gnomon.spec.workload import Floats

ADDED = ("time_us", "low_us", "high_us", "provenance")
MAX_BYTES = 512 * 1024**2
_WHERE_ZERO = frozenset({"bytes_read", "bytes_written", "bytes"})


class _Listed(Protocol):
    """Where each row stands."""

    def __getitem__(self, index: int, /) -> str: ...


@overload
def ops(source: Mapping[str, Any], *, on: str, out: None = None) -> dict[str, Any]: ...


@overload
def ops(
    source: str | Path | Iterable[Mapping[str, Any]], *, on: str, out: str | Path | None = None
) -> list[dict[str, Any]]: ...


def ops(source: Any, *, on: str, out: str | Path | None = None) -> list[dict[str, Any]] | dict[str, Any]:
    """Rows of an operator table with `time_us,low_us,high_us,provenance` added, in order.

    `source` is a CSV file, an iterable of mappings, or a mapping of columns, which comes back as one of arrays; there
    a single value stands for all rows. Device time, without launch.
    """
    pool = parse_pool(on)
    pool = pool.resized(max(pool.count, pool.node_size))
    if isinstance(source, Mapping):
        return _as_columns(source, pool, out)
    if isinstance(source, (str, Path)):
        name = str(source)
        columns, rows = _read(Path(source))
    else:
        name, columns, rows = "row", [], [dict(row) for row in source]
    groups: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(rows):
        kind = _kind(name, index, row)
        groups.setdefault((kind, _dtype(name, index, row, kind, pool)), []).append(index)
    for (kind, dtype), members in groups.items():
        _price(pool, kind, dtype, [rows[i] for i in members], [_place(name, i) for i in members])
    if out is not None:
        write_text(Path(out), table(rows, [*columns, *ADDED]))
    return rows


def _as_columns(source: Mapping[str, Any], pool: Pool, out: Any) -> dict[str, Any]:
    if out is not None:
        raise InputError("columns are not written to a file", where="out", hint="Give rows, or leave it out.")
    machine = Machine(pool, profile_for(pool.chip))

    def needed(kind: str, dtype: str, row: int) -> tuple[str, tuple[str, ...]]:
        given = {"op": kind, "dtype": dtype}
        known = _kind("row", row, given)
        return _dtype("row", row, given, known, pool), (*COLUMNS[known], *(("batch",) if known == "gemm" else ()))

    def price(
        kind: str, dtype: str, columns: Mapping[str, Floats], rows: NDArray[np.int64]
    ) -> tuple[Floats, float, str]:
        places = _Places(rows)
        for name, values in columns.items():
            _in_range(kind, name, values, values, places)
        seconds, family = _seconds(machine, kind, dtype, columns, places)
        return seconds, 1.645 * family.spread, f"{family.provenance}: {family.source}"

    return priced_columns(source, needed, price)


class _Places:
    """Where rows stand, told when asked: a million texts are not made in case one is needed."""

    def __init__(self, rows: NDArray[np.int64]) -> None:
        self._rows = rows

    def __getitem__(self, index: int) -> str:
        return f"row {int(self._rows[index])}"


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Rows as CSV; `columns` are there even where no row is."""
    file = io.StringIO()
    names = list(dict.fromkeys([name for row in rows for name in row] or columns))
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _place(name: str, index: int) -> str:
    return f"{name} line {index + 2}" if name != "row" else f"row {index}"


def _read(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    try:
        check_regular(path, MAX_BYTES)
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            columns = list(reader.fieldnames or ())
            rows = list(reader)
    except FileNotFoundError:
        raise InputError("no such file", where=str(path)) from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"cannot be read: {problem}", where=str(path)) from None
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"has the column '{twice}' twice", where=str(path))
    for column in ("op", "dtype"):
        if column not in columns:
            raise InputError(f"has no column '{column}'", where=str(path), hint="`op` and `dtype` are needed.")
    for index, row in enumerate(rows):
        if None in row:
            raise InputError("has more fields than the header", where=_place(str(path), index))
    return columns, rows


def _kind(name: str, index: int, row: Mapping[str, Any]) -> str:
    kind = str(row.get("op") or "").strip()
    if kind not in COLUMNS:
        error = unknown_name("operator", kind, known_kinds())
        raise InputError(error.message, where=f"{_place(name, index)}, column op", hint=error.hint)
    return kind


_SPELLED = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


def _dtype(name: str, index: int, row: Mapping[str, Any], kind: str, pool: Pool) -> str:
    given = str(row.get("dtype") or "").strip().lower()
    dtype = _SPELLED.get(given, given)
    try:
        width(dtype)
        if kind in ("gemm", "conv", "moe"):
            pool.chip.rate(dtype)
    except InputError as problem:
        raise InputError(problem.message, where=f"{_place(name, index)}, column dtype", hint=problem.hint) from None
    return dtype


def _price(pool: Pool, kind: str, dtype: str, rows: list[dict[str, Any]], places: list[str]) -> None:
    machine = Machine(pool, profile_for(pool.chip))
    columns = {name: _numbers(kind, name, rows, places) for name in COLUMNS[kind]}
    if kind == "gemm":
        given = [{"batch": 1 if row.get("batch") in (None, "") else row["batch"]} for row in rows]
        columns["batch"] = _numbers(kind, "batch", given, places)
    seconds, family = _seconds(machine, kind, dtype, columns, places)
    spread = 1.645 * family.spread
    for row, value in zip(rows, (seconds * 1e6).tolist(), strict=True):
        row["time_us"] = round(value, 4)
        row["low_us"], row["high_us"] = round(value * math.exp(-spread), 4), round(value * math.exp(spread), 4)
        row["provenance"] = f"{family.provenance}: {family.source}"


def _seconds(
    machine: Machine, kind: str, dtype: str, columns: Mapping[str, Floats], places: _Listed
) -> tuple[Floats, Family]:
    _check(kind, columns, places)
    shape = shape_of(kind, columns)
    if "ranks" in columns:
        seconds = np.zeros(columns["ranks"].size)
        for ranks in np.unique(columns["ranks"]):
            same = columns["ranks"] == ranks
            seconds[same] = machine.seconds(kind, dtype, {name: values[same] for name, values in shape.items()})
    else:
        seconds = machine.seconds(kind, dtype, shape)
    bad = np.flatnonzero(~np.isfinite(seconds))
    if bad.size:
        raise InputError("is too large to price", where=places[int(bad[0])])
    return seconds, machine.evidence(kind, dtype)


def _numbers(kind: str, name: str, rows: Sequence[Mapping[str, Any]], places: Sequence[str]) -> Floats:
    values = np.empty(len(rows))
    texts = [row.get(name) for row in rows]
    for i, text in enumerate(texts):
        try:
            values[i] = float(text if text is not None else "")
        except (TypeError, ValueError, OverflowError):
            found = "is missing" if text in (None, "") else f"'{text}' is not a number"
            raise InputError(found, where=f"{places[i]}, column {name}") from None
    _in_range(kind, name, values, texts, places)
    return values


def _in_range(kind: str, name: str, values: Floats, texts: Sequence[Any] | Floats, places: _Listed) -> None:
    """Sizes are whole numbers from 1; bytes are any from 0, and what a strided convolution sums over is any from 1."""
    broken = name in _WHERE_ZERO or (kind, name) == ("conv", "k")
    least = 0.0 if name in _WHERE_ZERO else 1.0
    good = np.isfinite(values) & (values >= least)
    bad = np.flatnonzero(~(good if broken else good & (values == np.floor(values))))
    if bad.size:
        first, what = int(bad[0]), "number" if broken else "whole number"
        where = f"{places[first]}, column {name}"
        raise InputError(f"'{texts[first]}' is not a {what} of at least {least:g}", where=where)


def _check(kind: str, columns: Mapping[str, Any], places: _Listed) -> None:
    longer = ("q_len", "kv_len", "new tokens are more than the keys they attend to")
    rules = {
        **dict.fromkeys(("attention_prefill", "attention_forward", "attention_backward"), longer),
        "moe": ("topk", "experts", "more experts are chosen than there are"),
    }
    if kind in rules:
        smaller, larger, why = rules[kind]
        bad = np.flatnonzero(columns[smaller] > columns[larger])
        if bad.size:
            raise InputError(why, where=f"{places[int(bad[0])]}, column {smaller}")
    if kind.startswith("attention"):
        bad = np.flatnonzero(columns["heads"] % columns["kv_heads"])
        if bad.size:
            raise InputError("heads do not divide by kv_heads", where=f"{places[int(bad[0])]}, column kv_heads")
