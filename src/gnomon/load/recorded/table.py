"""Traces as CSV, block by block in bounded memory, a million rows in about a second.

Columns are `arrival_s,input_tokens,output_tokens` with, where there are such, `prefix_group,prefix_tokens`, `adapter`,
`session,think_s`, `priority`, `images,image_tokens` and `model`; or those of the Azure LLM traces
(`TIMESTAMP,ContextTokens,GeneratedTokens`), or of BurstGPT (`Timestamp,Model,Request tokens,Response tokens,Total
tokens,Log Type`); in any order, and no others.
Arrivals never fall from one line to the next. A file of lengths only needs a rate, at which arrivals are drawn.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError, unknown_name
from gnomon.load.recorded.columns import (
    LENGTHS,
    NAMES,
    ONE_MODEL,
    OPTIONAL,
    TEXT,
    Columns,
    OneSize,
    name_numbers,
)
from gnomon.load.recorded.found import Found
from gnomon.load.recorded.lines import MAX_FILE, check_length, line_of, text_parts
from gnomon.load.rows import HIGHEST_PRIORITY, NOTHING_RUN, first_fault, not_rising
from gnomon.load.stamps import STAMP, Moment, seconds_since
from gnomon.spec import NotModelled
from gnomon.spec.loads.images import MOST_IMAGES
from gnomon.spec.workload import MAX_ARRIVAL_S, MAX_TOKENS

COLUMNS = {
    "arrival_s": "arrival_s", "timestamp": "timestamp", "input_tokens": "input_tokens",
    "contexttokens": "input_tokens", "output_tokens": "output_tokens", "generatedtokens": "output_tokens",
    **{name: name for name in (*NAMES, *OPTIONAL)},
}  # fmt: skip
TOGETHER = {
    "prefix_group": "prefix_tokens", "prefix_tokens": "prefix_group", "think_s": "session", "image_tokens": "images",
}  # fmt: skip
"""Columns that say nothing without another one."""
BURST_GPT = {
    "timestamp": "arrival_s", "request tokens": "input_tokens", "response tokens": "output_tokens",
    "model": "unused Model", "total tokens": "unused Total tokens", "log type": "unused Log Type",
    "session id": "unused Session ID", "elapsed time": "unused Elapsed time",
}  # fmt: skip
"""Columns of BurstGPT 1 and 2 (Wang et al. 2024); its times are seconds."""
BURST_GPT_IDLE = (
    NotModelled(option="column Model", why="one model serves all requests of a trace"),
    NotModelled(option="column Log Type", why="requests of an API and of conversations are served alike"),
)
TYPES = {"arrival_s": "f8", "timestamp": STAMP, "input_tokens": "f8", "output_tokens": "f8"} | dict.fromkeys(
    (*NAMES, *OPTIONAL), TEXT
)
MOST = {"priority": HIGHEST_PRIORITY, "think_s": MAX_ARRIVAL_S, "images": MOST_IMAGES}
FAILED = "requests without tokens of prompt or response failed, and are left out"


@dataclass(frozen=True, slots=True)
class Header:
    """What the first line says."""

    columns: Sequence[str]
    """Our names of all columns, in the order of the file."""
    burst_gpt: bool = False


def read_table(file: Path, limit: int | None) -> Found:
    """The requests of a CSV file, or its first `limit`."""
    if limit is None:
        check_length(file)
    parts = text_parts(file, None if limit is not None else MAX_FILE)
    head, _, rest = next(parts)[0].partition("\n")
    header = _header(head, file)
    reader = _Reader(header, file)
    for text, line in chain([(rest, 2)], parts):
        reader.read(text, line, None if limit is None else limit - reader.kept.count)
        if reader.kept.count == limit:
            break
    if not reader.kept.count:
        raise InputError("has no requests", where=str(file), hint=NOTHING_RUN)
    timed = "arrival_s" in reader.kept
    requests, idle = reader.kept.requests(file.name.removesuffix(".gz").removesuffix(".csv"))
    rows = reader.rows
    return Found(
        requests, timed, lambda place: f"line {line_of(file, rows(place), 1)}", (*idle, *reader.left_out()),
        reader.size.tokens,
    )  # fmt: skip


@dataclass(slots=True)
class _Reader:
    """Takes the lines of a trace block by block and keeps their columns."""

    header: Header
    file: Path
    kept: Columns = field(default_factory=Columns)
    size: OneSize = field(default_factory=OneSize)
    _clock: str = ""
    _start: Moment | None = None
    _offset_s: float | None = None
    _last_s: float = 0.0
    _model: str = ""
    _read: int = 0
    _failed: list[NDArray[np.int64]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._clock = next((name for name in ("arrival_s", "timestamp") if name in self.header.columns), "")

    def read(self, text: str, line: int, most: int | None) -> None:
        """Keep the requests of these lines, or the first so many; the first line is the file's `line`."""
        columns = self.header.columns
        try:
            table = _parse(text, columns, most if not self.header.burst_gpt else None)
            if not table.size:
                return
            found = self._checked(table)
            if self._clock == "timestamp":
                found["arrival_s"], self._start = seconds_since(found.pop("timestamp"), self._start)
        except (ValueError, OverflowError):
            raise self._fault(text, line) from None
        if self._clock:
            self._check_arrivals(found["arrival_s"], text, line)
        if "model" in columns:
            self._check_model(table["model"], text, line)
        if "image_tokens" in found:
            self._check_size(found["images"], found.pop("image_tokens"), text, line)
        self._keep(found, most)

    def _keep(self, found: dict[str, NDArray[Any]], most: int | None) -> None:
        if not self.header.burst_gpt:
            self.kept.add(found)
            return
        if self._offset_s is None:
            self._offset_s = float(found["arrival_s"][0])
        found["arrival_s"] = found["arrival_s"] - self._offset_s
        whole = (found["input_tokens"] >= 1) & (found["output_tokens"] >= 1)
        rows = np.flatnonzero(whole)[:most]
        upto = whole.size if most is None or rows.size < most else int(rows[-1]) + 1
        self._failed.append(self._read + np.flatnonzero(~whole[:upto]))
        self._read += upto
        if rows.size:
            self.kept.add({name: values[rows] for name, values in found.items()})

    def rows(self, place: int) -> int:
        """The row of the file that holds the request at a place."""
        place %= max(self.kept.count, 1)
        failed = np.concatenate(self._failed) if self._failed else np.zeros(0, np.int64)
        return place + int(np.searchsorted(failed - np.arange(failed.size), place, side="right"))

    def left_out(self) -> tuple[NotModelled, ...]:
        """What of the file is in no request."""
        if not self.header.burst_gpt:
            return (ONE_MODEL,) if "model" in self.header.columns else ()
        failed = sum(part.size for part in self._failed)
        said = (NotModelled(option=f"{failed:,} of {self._read:,} rows", why=FAILED),) if failed else ()
        return (*BURST_GPT_IDLE, *said)

    def _checked(self, table: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The columns with names as numbers. Raises ValueError where a cell is none that a request can have."""
        found = {name: table[name] for name in self.header.columns if name in TYPES}
        least = 0 if self.header.burst_gpt else 1
        for name in LENGTHS:
            _check(found[name], least, MAX_TOKENS)
        if "arrival_s" in found:
            _check(found["arrival_s"], 0, MAX_ARRIVAL_S, whole=False)
        for name in OPTIONAL:
            if name in found:
                cells = np.char.strip(found[name])
                found[name] = np.where(np.char.str_len(cells) == 0, b"0", cells).astype(np.float64)
                least = -HIGHEST_PRIORITY if name == "priority" else 0
                most = MOST.get(name, MAX_TOKENS)
                _check(found[name], least, most, whole=name != "think_s")
        for name in NAMES:
            if name in found:
                found[name] = name_numbers(found[name])
        found.pop("model", None)
        if "prefix_tokens" in found:
            shared = found["prefix_tokens"]
            if np.any(shared > found["input_tokens"]) or np.any((shared > 0) & (found["prefix_group"] == 0)):
                raise ValueError("prefix_tokens")
        return found

    def _check_model(self, names: NDArray[Any], text: str, line: int) -> None:
        plain = np.char.strip(names)
        first = self._model or plain[0].decode()
        other = np.flatnonzero(plain != first.encode())
        if other.size:
            message = f"asks for a second model, '{plain[other[0]].decode()}' after '{first}'"
            place = [number for number, row in enumerate(text.split("\n")) if row.strip()][int(other[0])]
            hint = f"One model serves a load: give each model's requests a file of their own. {NOTHING_RUN}"
            raise InputError(message, where=f"{self.file} line {line + place}, column model", hint=hint)
        self._model = first

    def _check_size(self, images: NDArray[Any], tokens: NDArray[Any], text: str, line: int) -> None:
        place = self.size.other(images, tokens)
        if place is not None:
            row = [number for number, row in enumerate(text.split("\n")) if row.strip()][place]
            where = f"{self.file} line {line + row}, column image_tokens"
            raise InputError(self.size.fault(float(tokens[place])), where=where, hint=NOTHING_RUN)

    def _check_arrivals(self, arrivals: NDArray[np.float64], text: str, line: int) -> None:
        falls = np.flatnonzero(np.diff(arrivals, prepend=self._last_s) < 0)
        if falls.size:
            raise not_rising(text, int(falls[0]), self._clock, self.file, line)
        self._last_s = float(arrivals[-1])
        if self._last_s > MAX_ARRIVAL_S:
            message = f"the times are more than {MAX_ARRIVAL_S:.0f} seconds apart"
            raise InputError(message, where=f"{self.file}, column {self._clock}", hint=NOTHING_RUN)

    def _fault(self, text: str, line: int) -> InputError:
        found = first_fault(text, self.header.columns, self.file, line, least=0 if self.header.burst_gpt else 1)
        return found or InputError("cannot be read", where=str(self.file), hint=NOTHING_RUN)


def _header(text: str, file: Path) -> Header:
    where = f"{file} line 1"
    try:
        cells = [cell.strip() for cell in next(csv.reader(io.StringIO(text)), [])]
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", where=where, hint=NOTHING_RUN) from None
    burst_gpt = {"request tokens", "response tokens"} <= {cell.lower() for cell in cells}
    known = BURST_GPT if burst_gpt else COLUMNS
    names = [known.get(cell.lower(), "") for cell in cells]
    for name in LENGTHS:
        if name not in names:
            hint = f"The first line names the columns: arrival_s,input_tokens,output_tokens. {NOTHING_RUN}"
            raise InputError(f"has no column {name}", where=where, hint=hint)
    for place, (cell, name) in enumerate(zip(cells, names, strict=True)):
        if not name:
            raise _unknown_column(cell, place, where)
        if name in names[:place]:
            raise InputError(f"the column {name} is given twice", where=where, hint=NOTHING_RUN)
    if {"arrival_s", "timestamp"} <= set(names):
        hint = f"Leave one of them out. {NOTHING_RUN}"
        raise InputError("has two columns of arrivals, arrival_s and timestamp", where=where, hint=hint)
    for name, other in TOGETHER.items():
        if name in names and other not in names:
            hint = f"Add it, or leave {name} out. {NOTHING_RUN}"
            raise InputError(f"the column {name} needs a column {other}", where=where, hint=hint)
    return Header(names, burst_gpt)


def _unknown_column(cell: str, place: int, where: str) -> InputError:
    if not cell:
        return InputError(f"column {place + 1} has no name", where=where, hint=f"Leave it out. {NOTHING_RUN}")
    known = f"Known: arrival_s or timestamp, {', '.join((*LENGTHS, *NAMES, *OPTIONAL))}."
    return unknown_name("column", cell, COLUMNS, where=where, hint=f"{known} {NOTHING_RUN}")


def _parse(text: str, columns: Sequence[str], most: int | None) -> NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "input contained no data" is said by the caller
        table: NDArray[Any] = np.loadtxt(
            io.StringIO(text),
            dtype=[(name, TYPES.get(name, TEXT)) for name in columns],
            delimiter=",",
            comments=None,
            max_rows=most,
            quotechar='"',
            ndmin=1,
        )
    return table


def _check(values: NDArray[np.float64], least: float, most: float, *, whole: bool = True) -> None:
    """Raise ValueError where a number is out of its range, or has a fraction where it may not."""
    if not np.all((values >= least) & (values <= most)) or (whole and not np.all(values == np.floor(values))):
        raise ValueError("out of range")
