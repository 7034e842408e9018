"""Tables of measured operators, read with suspicion: which columns there are, and what may stand in them."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from gnomon.cost.rows import COLUMNS, kind_of
from gnomon.errors import CalibrationError, unknown_name
from gnomon.graph.dtypes import GEMM_FORMATS, WIDTH
from gnomon.load.files import read_text
from gnomon.spec.workload import Floats

Row = Mapping[str, str]
OPTIONAL: dict[str, tuple[str, Callable[[Row], str]]] = {
    "value_dim": ("attention", lambda row: row["head_dim"]),
    "window": ("attention", lambda row: row["kv_len"]),
    "state_bytes": ("scan", lambda _: "2"),
    "tokens": ("elementwise", lambda _: "0"),
    "batch": ("gemm", lambda _: "1"),
}
"""Columns that some rows of some kinds have, and what stands there where they do not."""
UNPRICED = ("sustained", "launch", "host_copy", "sampling")
"""What tables hold beside operators; the column `kernel` says of what."""
NEEDED = ("op", "dtype", "time_us")
FORMATS = (*WIDTH, *GEMM_FORMATS)
WORK = ("flops", "bytes")
LEAST_US, MOST_US = 1e-3, 1e9
"""No kernel is done within a nanosecond, and none takes a quarter of an hour."""
LARGEST = 1e15
MAX_BYTES = 256 * 1024**2
MAX_ROWS = 500_000
MOST_NAMED = 8
MEND = "Remove or mend it."


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table of operators, as text."""
    try:
        text = read_text(path, MAX_BYTES)
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        _check_header(reader.fieldnames or (), str(path))
        rows = list(islice(reader, MAX_ROWS + 1))
    except csv.Error as problem:
        raise CalibrationError(f"is no table: {problem}", where=str(path)) from None
    if len(rows) > MAX_ROWS:
        raise CalibrationError(f"has more than {MAX_ROWS:,} rows", where=str(path), hint="Keep fewer of them.")
    for line, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise CalibrationError("has not as many fields as the header", where=f"{path} line {line}")
        _check_words(row, f"{path} line {line}")
    return rows


def _check_header(names: Sequence[str], where: str) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise CalibrationError(f"the column '{twice}' is given twice", where=where, hint="Keep one of them.")
    missing = [name for name in NEEDED if name not in names]
    if missing:
        held = ", ".join(names[:MOST_NAMED]) or "nothing"
        known = ", ".join(dict.fromkeys((*NEEDED, *(name for each in COLUMNS.values() for name in each))))
        hint = f"Known columns: {known}. docs/calibrate.md says which operator needs which."
        raise CalibrationError(f"has no column {' or '.join(missing)} (it holds {held})", where=where, hint=hint)


def _check_words(row: Row, where: str) -> None:
    kind = kind_of(row)
    if kind in UNPRICED:
        if not row.get("kernel"):
            raise CalibrationError(f"a row of {kind} says not of which kernel it is", where=f"{where}, column kernel")
    elif kind not in COLUMNS:
        raise CalibrationError(f"unknown operator '{kind}'", where=f"{where}, column op")
    elif row["dtype"] not in FORMATS:
        raise unknown_name("number format", row["dtype"], FORMATS, where=f"{where}, column dtype")


def number(row: Row, name: str, where: str, least: float = LEAST_US, most: float = LARGEST) -> float:
    """One cell. What is empty, no number or out of its range is refused."""
    text = row.get(name) or ""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        range_ = f"{least:g} to {most:g}"
        raise CalibrationError(f"a row of {kind_of(row)} has {name} '{text}', not {range_}", where=where, hint=MEND)
    return value


def read_table(
    path: Path, framework: str | None = None, without: Collection[str] = ("copy",)
) -> dict[tuple[str, str], dict[str, Floats]]:
    """`grouped` of a whole file."""
    return grouped(read_rows(path), str(path), framework, without)


def grouped(
    rows: Iterable[dict[str, str]], where: str, framework: str | None = None, without: Collection[str] = ("copy",)
) -> dict[tuple[str, str], dict[str, Floats]]:
    """Columns of a measured table by (operator, number format), of one framework or of all, without some
    kernels. Plain copies run on the copy engine, faster than anything a model runs."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        if framework is not None and (row.get("framework") or "") != framework:
            continue
        if row.get("kernel") not in without and row["op"] not in UNPRICED:
            groups[kind_of(row), row["dtype"]].append(row)
    return {key: _columns(where, key[0], rows) for key, rows in groups.items()}


def _columns(where: str, kind: str, rows: list[dict[str, str]]) -> dict[str, Floats]:
    names = [*COLUMNS[kind], "time_us"]
    missing = [name for name in names if name not in rows[0]]
    if missing:
        raise CalibrationError(f"rows of {kind} need a column {' and a column '.join(missing)}", where=where)
    for name, (family, usual) in OPTIONAL.items():
        if kind.startswith(family) and any(row.get(name) for row in rows):
            rows = [row | {name: row.get(name) or usual(row)} for row in rows]
            names.append(name)
    renamed = {"tokens": "rows"} if kind == "elementwise" else {}
    return {renamed.get(name, name): _column(where, rows, name) for name in names}


def _column(where: str, rows: list[dict[str, str]], name: str) -> Floats:
    zero = name.startswith("bytes") or name in (*WORK, "tokens")
    least, most = (LEAST_US, MOST_US) if name == "time_us" else (0.0 if zero else 1.0, LARGEST)
    try:
        values = np.array([float(row[name]) for row in rows])
    except ValueError:
        values = np.full(len(rows), np.nan)
    bad = np.flatnonzero(~((values >= least) & (values <= most)))
    if bad.size:
        for row in (rows[int(place)] for place in bad):
            number(row, name, where, least, most)
    return values
