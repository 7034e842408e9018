"""Single operators, priced row by row: a table in, the same table with times out."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from gnomon.errors import InputError
from gnomon.load import parse_pool
from gnomon.load.files import check_regular
from gnomon.paths import write_text
from gnomon.planning.operators.columns import priced_columns
from gnomon.planning.operators.price import ADDED, TRUTH, WORDS, OperatorGroup, Pricer, check_results, word
from gnomon.planning.operators.ranges import SWITCHES
from gnomon.spec.workload import Floats

MAX_BYTES = 256 * 1024**2
MAX_ROWS = 500_000
"""Of a file: each row is kept as the words of its cells, a kilobyte or two."""


@overload
def ops(source: Mapping[str, Any], *, on: str, out: None = None) -> dict[str, Any]: ...


@overload
def ops(
    source: str | Path | Iterable[Mapping[str, Any]], *, on: str, out: str | Path | None = None
) -> list[dict[str, Any]]: ...


def ops(source: Any, *, on: str, out: str | Path | None = None) -> list[dict[str, Any]] | dict[str, Any]:
    """Rows of an operator table with `time_us,low_us,high_us,provenance` added, in order.

    `source` is a CSV file, an iterable of mappings, or a mapping of columns, which comes back as one of arrays; there
    a single value stands for all rows. Device time, without launch. A table that has all of these columns already is
    priced again; one that has some of them keeps figures of its own there, and is refused.
    """
    pricer = Pricer(parse_pool(on))
    if isinstance(source, Mapping):
        if out is not None:
            raise InputError("columns are not written to a file", where="out", hint="Give rows, or leave it out.")
        return priced_columns(source, pricer)
    if isinstance(source, (str, Path)):
        columns, rows, lines = _read(Path(source))
        told = [f"{source} line {line}" for line in lines]
    else:
        rows = [dict(row) for row in source]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        told = [f"row {index}" for index in range(len(rows))]
        if not set(ADDED).isdisjoint(columns):
            for row, place in zip(rows, told, strict=True):
                check_results(row, place)
    for group, members in _groups(rows, told).items():
        places = [told[i] for i in members]
        pricer.check(group, places[0])
        _price(pricer, group, [rows[i] for i in members], places, columns)
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


def _groups(rows: Sequence[Mapping[str, Any]], told: Sequence[str]) -> dict[OperatorGroup, list[int]]:
    """The rows of each group, by their places in the table."""
    known: dict[tuple[Any, ...], OperatorGroup] = {}
    groups: dict[OperatorGroup, list[int]] = {}
    for index, row in enumerate(rows):
        texts = tuple("" if (value := row.get(column)) is None else str(value) for column in WORDS)
        if texts not in known:
            words = (word(column, text, told[index]) for column, text in zip(WORDS, texts, strict=True))
            known[texts] = OperatorGroup(*words)  # type: ignore[arg-type]
        groups.setdefault(known[texts], []).append(index)
    return groups


def _price(
    pricer: Pricer,
    group: OperatorGroup,
    rows: Sequence[dict[str, Any]],
    places: Sequence[str],
    columns: Collection[str],
) -> None:
    sizes = {name: _numbers(name, rows, places) for name in group.needed}
    for name, usual in group.optional.items():
        if name in columns and any(not _empty(row.get(name)) for row in rows):
            sizes[name] = _numbers(name, rows, places, usual, some=True)
    for name in set(group.unused).intersection(columns):
        said = next((place for row, place in zip(rows, places, strict=True) if not _empty(row.get(name))), None)
        if said is not None:
            raise group.refusal(name, said)
    priced = pricer.priced(group, sizes, places)
    told = priced.pop("provenance")
    times = (values.tolist() for values in priced.values())
    for row, *values in zip(rows, *times, strict=True):
        row.update(zip(ADDED, (*values, told), strict=True))


def _empty(value: Any) -> bool:
    return value is None or value == "" or value != value


def _numbers(
    name: str, rows: Sequence[Mapping[str, Any]], places: Sequence[str], usual: float = math.nan, some: bool = False
) -> Floats:
    """A column of the rows; `usual` stands where nothing does, which only some columns allow."""
    values = []
    for i, row in enumerate(rows):
        text: Any = row.get(name)
        try:
            value = float(text) if text not in (None, "") else usual
        except (TypeError, ValueError, OverflowError):
            value = _truth(text, f"{places[i]}, column {name}")
        if value != value:
            if some != _empty(text):
                why = f"'{text}' is not a number" if some else "is missing"
                raise InputError(why, where=f"{places[i]}, column {name}")
            value = usual
        values.append(value)
    return np.array(values)


def _truth(text: Any, where: str) -> float:
    value = TRUTH.get(str(text).strip().lower()) if where.endswith(SWITCHES) else None
    if value is None:
        raise InputError(f"'{text}' is not a number", where=where)
    return value
