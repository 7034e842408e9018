"""Operator tables: read from CSV or taken from Python, and written again; and the profiles that price them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.engines import kernels_of
from gnomon.errors import GnomonError, InputError, shown
from gnomon.load.files import check_regular
from gnomon.load.fleet import parse_pool
from gnomon.load.profiles import profiles
from gnomon.planning.operators.price import WORDS, KernelProfiles, Pricer, check_results
from gnomon.spec import Pool

MAX_BYTES = 256 * 1024**2
MAX_ROWS = 500_000
"""Rows of a file at most: each is kept as text, a kilobyte or two."""
ENGINE = "engine"
"""The column that says whose kernels run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    """Rows, where each stands, and the columns they have."""

    rows: list[dict[str, Any]]
    places: Sequence[str]
    columns: Sequence[str]


def operator_table(source: str | Path | Iterable[Mapping[str, Any]]) -> OperatorTable:
    """A CSV file, or rows as Python has them."""
    if isinstance(source, (str, Path)):
        columns, rows, lines = _read(Path(source))
        return OperatorTable(rows=rows, places=[f"{source} line {line}" for line in lines], columns=columns)
    rows = []
    for index, row in enumerate(source):
        if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
            raise InputError(f"{shown(row)} is not a mapping of columns to values", where=f"row {index}")
        rows.append(dict(row))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    places = [f"row {index}" for index in range(len(rows))]
    for row, place in zip(rows, places, strict=True):
        check_results(row, place)
    return OperatorTable(rows=rows, places=places, columns=columns)


def pricer_of(on: str | Pool, engines: Iterable[Any]) -> Pricer:
    """What prices operators on a chip, under each of the `engines` that a table names."""
    pool, known = parse_pool(on), profiles()
    chips: dict[str, list[str]] = {}
    for chip, files in known.files.items():
        for framework in filter(None, files):
            chips.setdefault(framework, []).append(chip)
    wanted = {kernels_of("", ())}
    for text in dict.fromkeys(str(engine).strip() for engine in engines):
        with suppress(GnomonError):  # the row that names it says so
            wanted.add(kernels_of(text, sorted(chips)))
    found = {framework: known.resolve(pool.chip, framework) for framework in sorted(wanted)}
    return Pricer(pool, KernelProfiles(profiles=found, chips=chips))


def refuse_columns_out(out: str | Path | None) -> None:
    if out is not None:
        raise InputError("columns are not written to a file", where="out", hint="Give rows, or leave it out.")


def engines_of(table: OperatorTable | Mapping[str, Any]) -> Iterable[Any]:
    """What the column of engines says, each value once or more often."""
    if isinstance(table, OperatorTable):
        return (row.get(ENGINE) or "" for row in table.rows)
    return [value for value in np.atleast_1d(np.asarray(table.get(ENGINE, ""))).tolist() if value == value]


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Rows as CSV; `columns` are there even where no row is."""
    file = io.StringIO()
    names = list(dict.fromkeys([name for row in rows for name in row] or columns))
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _read(path: Path) -> tuple[list[str], list[dict[str, Any]], list[int]]:
    """The columns, the rows, and the lines they end on: empty ones are left out."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    try:
        check_regular(path, MAX_BYTES)
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            columns = list(reader.fieldnames or ())
            for row in reader:
                if len(rows) == MAX_ROWS:
                    hint = "Price it in parts, or hand columns to `gnomon.ops`."
                    raise InputError(f"has more than {MAX_ROWS:,} rows", where=str(path), hint=hint)
                rows.append(row)
                lines.append(reader.line_num)
    except FileNotFoundError:
        raise InputError("no such file", where=str(path)) from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"cannot be read: {problem}", where=str(path)) from None
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"has the column '{twice}' twice", where=str(path))
    for column in WORDS[:2]:
        if column not in columns:
            raise InputError(f"has no column '{column}'", where=str(path), hint="`op` and `dtype` are needed.")
    check_results(columns, str(path))
    for row, line in zip(rows, lines, strict=True):
        if None in row:
            raise InputError("has more fields than the header", where=f"{path} line {line}")
    return columns, rows, lines
