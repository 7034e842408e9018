"""Request traces from CSV files: block by block in bounded memory, a million rows in about a second.

Columns are `arrival_s,input_tokens,output_tokens`, or those of the Azure LLM traces
(`TIMESTAMP,ContextTokens,GeneratedTokens`), in any order; any other is refused. Arrivals never fall from one line to
the next. A file of lengths only needs a rate, at which arrivals are drawn.
"""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError, unknown_name
from gnomon.load.files import MIB, as_path, blocks, decoded, reading
from gnomon.load.rows import NOTHING_RUN, first_fault, not_rising
from gnomon.load.stamps import STAMP, Moment, seconds_since
from gnomon.spec import Requests, ServingLoad
from gnomon.spec.drawing import arrivals, check_load
from gnomon.spec.drawing import draw as drawn
from gnomon.spec.workload import MAX_ARRIVAL_S, MAX_TOKENS, RequestTrace

MAX_FILE = 1024 * MIB
"""Bytes of unpacked text that are read of a trace."""
MAX_LINES = 10_000_000
"""Lines of a trace: read, they take a quarter of a gigabyte."""
MAX_LINE = 65536
COLUMNS = {
    "arrival_s": "arrival_s",
    "timestamp": "timestamp",
    "input_tokens": "input_tokens",
    "contexttokens": "input_tokens",
    "output_tokens": "output_tokens",
    "generatedtokens": "output_tokens",
}
LENGTHS = ("input_tokens", "output_tokens")
NOT_MODELLED = ("prefix_group", "prefix_tokens", "adapter", "session", "priority", "model")
"""Columns that have a meaning, and no effect on a simulation yet."""
NAMED = {"azure-conv": "azure_llm_2023_conv.csv.gz", "azure-code": "azure_llm_2023_code.csv.gz"}
TYPES = {"arrival_s": "f8", "timestamp": STAMP, "input_tokens": "f8", "output_tokens": "f8"}
KEPT = {"arrival_s": np.float64, "input_tokens": np.int32, "output_tokens": np.int32}
"""What is kept of a block until all are read."""


def read_trace(path: str | Path, limit: int | None = None) -> RequestTrace:
    """What a trace says, the first `limit` lines of it where that is given: nothing behind them is read."""
    file = trace_path(path)
    with reading(file):
        found = _columns_of(file, limit)
    inputs, outputs = (found[name].astype(np.int64) for name in LENGTHS)
    return RequestTrace(
        arrival_s=found.get("arrival_s"), input_tokens=inputs, output_tokens=outputs, name=_stem(file), file=str(file),
        line_of=lambda place: line_of(file, place),
    )  # fmt: skip


def trace_of(load: ServingLoad) -> RequestTrace | None:
    """The trace that a load names, as far as the load goes; none where its requests are drawn."""
    check_load(load)
    return read_trace(load.trace, load.requests or None) if load.trace else None


def draw(load: ServingLoad, *, repeat: bool = True) -> Requests:
    """The requests of a load, its trace read first; see `gnomon.spec.drawing`."""
    return drawn(load, trace_of(load), repeat=repeat)


def requests(path: str | Path, *, rate_per_s: float | None = None, seed: int = 0, limit: int | None = None) -> Requests:
    """The requests of a trace; the rate is only for files without arrival times."""
    return arrivals(read_trace(path, limit), rate_per_s, seed)


def line_of(path: str | Path, place: int) -> int:
    """The line of a trace that holds the request at a place, also of one that was repeated; empty lines hold none."""
    held = []
    for text, first in _lines(trace_path(path), None):
        held += [first + at for at, row in enumerate(text.split("\n")[:-1]) if row and first + at > 1]
        if len(held) > place:
            return held[place]
    return held[place % len(held)]


def trace_path(ref: str | Path) -> Path:
    """Where a trace stands: a file, or one of the named traces when the measurements are at hand."""
    name = NAMED.get(str(ref).lower())
    if name is None:
        return as_path(ref)
    near = Path(__file__).parents[4] / "shared" / "truth"
    folders = [Path(os.environ["GNOMON_TRUTH"])] if os.environ.get("GNOMON_TRUTH") else [Path("../shared/truth"), near]
    for folder in folders:
        if (folder / "traces" / name).is_file():
            return folder / "traces" / name
    hint = "Set GNOMON_TRUTH to the folder of published measurements, or give a CSV file."
    raise InputError(f"the trace '{ref}' is not on this machine", hint=hint)


def _columns_of(file: Path, limit: int | None) -> dict[str, NDArray[Any]]:
    """The checked columns by name; `arrival_s` where there are arrivals or timestamps."""
    if limit is None:
        _check_length(file)
    parts = _lines(file, None if limit is not None else MAX_FILE)
    head, _, rest = next(parts)[0].partition("\n")
    reader = _Reader(_header(head, file), file)
    for text, line in chain([(rest, 2)], parts):
        reader.read(text, line, None if limit is None else limit - reader.count)
        if reader.count == limit:
            break
    if not reader.count:
        raise InputError("has no requests", where=str(file), hint=NOTHING_RUN)
    return {name: reader.column(name) for name in KEPT if name in reader.kept}


class _Reader:
    """Takes the lines of a trace block by block and keeps their columns."""

    def __init__(self, columns: Sequence[str], file: Path) -> None:
        self.kept: dict[str, list[NDArray[Any]]] = {}
        self.count = 0
        self._columns, self._file = columns, file
        self._clock = next((name for name in ("arrival_s", "timestamp") if name in columns), "")
        self._start: Moment | None = None
        self._last_s = 0.0

    def read(self, text: str, line: int, most: int | None) -> None:
        """Keep the requests of these lines, or the first so many; the first line is the file's `line`."""
        try:
            table = _parse(text, self._columns, most)
            if not table.size:
                return
            _check(table, self._columns)
            columns = {name: table[name] for name in self._columns}
            if self._clock == "timestamp":
                columns["arrival_s"], self._start = seconds_since(columns.pop("timestamp"), self._start)
        except (ValueError, OverflowError):
            raise self._fault(text, line) from None
        if self._clock:
            self._check_arrivals(columns["arrival_s"], text, line)
        for name, values in columns.items():
            self.kept.setdefault(name, []).append(values.astype(KEPT[name]))
        self.count += len(table)

    def column(self, name: str) -> NDArray[Any]:
        """A whole column, which is then no longer kept in parts."""
        parts = self.kept[name]
        whole = np.concatenate(parts)
        parts.clear()
        return whole

    def _check_arrivals(self, arrivals: NDArray[np.float64], text: str, line: int) -> None:
        falls = np.flatnonzero(np.diff(arrivals, prepend=self._last_s) < 0)
        if falls.size:
            raise not_rising(text, int(falls[0]), self._clock, self._file, line)
        self._last_s = float(arrivals[-1])
        if self._last_s > MAX_ARRIVAL_S:
            message = f"the times are more than {MAX_ARRIVAL_S:.0f} seconds apart"
            raise InputError(message, where=f"{self._file}, column {self._clock}", hint=NOTHING_RUN)

    def _fault(self, text: str, line: int) -> InputError:
        found = first_fault(text, self._columns, self._file, line)
        return found or InputError("cannot be read", where=str(self._file), hint=NOTHING_RUN)


def _check_length(file: Path) -> None:
    """Refuse a file of more lines than are kept before any of them is read."""
    lines = 0
    for data in blocks(file, MAX_FILE):
        lines += data.count(b"\n") or data.count(b"\r")
        if lines > MAX_LINES:
            raise _too_many(file)


def _too_many(file: Path) -> InputError:
    hint = f"--requests N reads its first N lines alone. {NOTHING_RUN}"
    return InputError(f"has more than {MAX_LINES:,} lines", where=str(file), hint=hint)


def _lines(file: Path, limit: int | None) -> Iterator[tuple[str, int]]:
    """The text in parts of whole lines with plain line ends, each with the number of its first line."""
    line, left = 1, b""
    for data in blocks(file, limit):
        data, held = left + data, b""
        if data.endswith(b"\r"):  # perhaps one half of a line end
            data, held = data[:-1], b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = data.rfind(b"\n") + 1
        _check_lines(data, file, line)
        if end:
            yield decoded(data[:end], file, line), line
            line += data.count(b"\n", 0, end)
            if line > MAX_LINES:
                raise _too_many(file)
        left = data[end:] + held
    last = left.removesuffix(b"\r") + b"\n"
    _check_lines(last, file, line)
    yield decoded(last, file, line), line


def _check_lines(data: bytes, file: Path, line: int) -> None:
    """Refuse a line that is longer than any request can be, and a quoted cell that runs on over its end."""
    for start in range(0, len(data) - MAX_LINE + 1, MAX_LINE):
        if data.find(b"\n", start, start + MAX_LINE) < 0:
            line += data.count(b"\n", 0, start)
            raise InputError(f"is longer than {MAX_LINE:,} letters", where=f"{file} line {line}", hint=NOTHING_RUN)
    if b'"' in data:
        rows = data[: data.rfind(b"\n") + 1].split(b"\n")
        odd = next((place for place, row in enumerate(rows) if row.count(b'"') % 2), None)
        if odd is not None:
            raise InputError("a quoted cell has no end", where=f"{file} line {line + odd}", hint=NOTHING_RUN)


def _header(text: str, file: Path) -> list[str]:
    """Our names of all columns, in the order of the file."""
    where = f"{file} line 1"
    try:
        cells = next(csv.reader(io.StringIO(text)), [])
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", where=where, hint=NOTHING_RUN) from None
    names = [COLUMNS.get(cell.strip().lower(), "") for cell in cells]
    for name in LENGTHS:
        if name not in names:
            hint = f"The first line names the columns: arrival_s,input_tokens,output_tokens. {NOTHING_RUN}"
            raise InputError(f"has no column {name}", where=where, hint=hint)
    for place, (cell, name) in enumerate(zip(cells, names, strict=True)):
        if not name:
            raise _unknown_column(cell.strip(), place, where)
        if name in names[:place]:
            raise InputError(f"the column {name} is given twice", where=where, hint=NOTHING_RUN)
    if {"arrival_s", "timestamp"} <= set(names):
        hint = f"Leave one of them out. {NOTHING_RUN}"
        raise InputError("has two columns of arrivals, arrival_s and timestamp", where=where, hint=hint)
    return names


def _unknown_column(cell: str, place: int, where: str) -> InputError:
    if cell.lower() in NOT_MODELLED:
        hint = f"Leave it out. {NOTHING_RUN}"
        return InputError(f"the column {cell.lower()} is not modelled yet", where=where, hint=hint)
    if not cell:
        return InputError(f"column {place + 1} has no name", where=where, hint=f"Leave it out. {NOTHING_RUN}")
    known = "Known: arrival_s or timestamp, input_tokens, output_tokens."
    return unknown_name("column", cell, COLUMNS, where=where, hint=f"{known} {NOTHING_RUN}")


def _parse(text: str, columns: Sequence[str], most: int | None) -> NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "input contained no data" is said by the caller
        table: NDArray[Any] = np.loadtxt(
            io.StringIO(text),
            dtype=[(name, TYPES[name]) for name in columns],
            delimiter=",",
            comments=None,
            max_rows=most,
            quotechar='"',
            ndmin=1,
        )
    return table


def _check(table: NDArray[Any], columns: Sequence[str]) -> None:
    """Raise ValueError where a number is none that a request can have."""
    for name in LENGTHS:
        values = table[name]
        if not np.all((values >= 1) & (values <= MAX_TOKENS) & (values == np.floor(values))):
            raise ValueError(name)
    if "arrival_s" in columns and not np.all((table["arrival_s"] >= 0) & (table["arrival_s"] <= MAX_ARRIVAL_S)):
        raise ValueError("arrival_s")


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".csv")
