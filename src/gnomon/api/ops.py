"""Single operators, priced row by row: a table in, the same table with times out."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.cost.machine import Machine, known_kinds
from gnomon.cost.profile import profile_for
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


def ops(
    source: str | Path | Iterable[Mapping[str, Any]], *, on: str, out: str | Path | None = None
) -> list[dict[str, Any]]:
    """Rows of an operator table with `time_us,low_us,high_us,provenance` added, in order.

    `source` is a CSV file or an iterable of mappings. Device time, without launch.
    """
    pool = parse_pool(on)
    pool = pool.resized(max(pool.count, pool.node_size))
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
        if kind in ("gemm", "moe"):
            pool.chip.rate(dtype)
    except InputError as problem:
        raise InputError(problem.message, where=f"{_place(name, index)}, column dtype", hint=problem.hint) from None
    return dtype


def _price(pool: Pool, kind: str, dtype: str, rows: list[dict[str, Any]], places: list[str]) -> None:
    machine = Machine(pool, profile_for(pool.chip))
    columns = {name: _numbers(name, rows, places) for name in COLUMNS[kind]}
    if kind == "gemm":
        given = [{"batch": 1 if row.get("batch") in (None, "") else row["batch"]} for row in rows]
        columns["batch"] = _numbers("batch", given, places)
    _check(kind, columns, places)
    shape = shape_of(kind, columns)
    family = machine.evidence(kind, dtype)
    if "ranks" in columns:
        seconds = np.zeros(len(rows))
        for ranks in np.unique(columns["ranks"]):
            same = columns["ranks"] == ranks
            seconds[same] = machine.seconds(kind, dtype, {name: values[same] for name, values in shape.items()})
    else:
        seconds = machine.seconds(kind, dtype, shape)
    bad = np.flatnonzero(~np.isfinite(seconds))
    if bad.size:
        raise InputError("is too large to price", where=places[int(bad[0])])
    spread = 1.645 * family.spread
    for row, value in zip(rows, (seconds * 1e6).tolist(), strict=True):
        row["time_us"] = round(value, 4)
        row["low_us"], row["high_us"] = round(value * math.exp(-spread), 4), round(value * math.exp(spread), 4)
        row["provenance"] = f"{family.provenance}: {family.source}"


def _numbers(name: str, rows: Sequence[Mapping[str, Any]], places: Sequence[str]) -> Floats:
    values = np.empty(len(rows))
    for i, row in enumerate(rows):
        text = row.get(name)
        try:
            values[i] = float(text if text is not None else "")
        except (TypeError, ValueError, OverflowError):
            found = "is missing" if text in (None, "") else f"'{text}' is not a number"
            raise InputError(found, where=f"{places[i]}, column {name}") from None
        least = 0.0 if name in _WHERE_ZERO else 1.0
        whole = name in _WHERE_ZERO or values[i] == math.floor(values[i]) if math.isfinite(values[i]) else False
        if not whole or values[i] < least:
            what = "number" if name in _WHERE_ZERO else "whole number"
            raise InputError(f"'{text}' is not a {what} of at least {least:g}", where=f"{places[i]}, column {name}")
    return values


def _check(kind: str, columns: Mapping[str, Any], places: Sequence[str]) -> None:
    rules = {
        "attention_prefill": ("q_len", "kv_len", "new tokens are more than the keys they attend to"),
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
