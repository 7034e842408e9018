"""Request traces from CSV files, a million rows in about a second.

Columns are `arrival_s,input_tokens,output_tokens`, or those of the Azure LLM traces
(`TIMESTAMP,ContextTokens,GeneratedTokens`). Others are ignored; order does not matter. A file of
lengths only needs a rate, at which arrivals are drawn.
"""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.load.files import MIB, as_path, read_text
from gnomon.load.rows import MAX_ARRIVAL_S, MAX_TOKENS, NOTHING_RUN, first_fault
from gnomon.load.stamps import STAMP, seconds_since_first
from gnomon.spec import Requests

MAX_FILE = 1024 * MIB
MAX_LINE = 65536
COLUMNS = {
    "arrival_s": "arrival_s",
    "timestamp": "timestamp",
    "input_tokens": "input_tokens",
    "contexttokens": "input_tokens",
    "output_tokens": "output_tokens",
    "generatedtokens": "output_tokens",
}
NAMED = {"azure-conv": "azure_llm_2023_conv.csv.gz", "azure-code": "azure_llm_2023_code.csv.gz"}
TYPES = {"arrival_s": "f8", "timestamp": STAMP, "input_tokens": "f8", "output_tokens": "f8"}


def requests(path: str | Path, *, rate_per_s: float | None = None, seed: int = 0) -> Requests:
    """The requests of a trace in order of arrival. The rate is only for files without arrival times."""
    file = trace_path(path)
    text = _lines(read_text(file, MAX_FILE), file)
    columns = _columns(text, file)
    table = _table(text, columns, file)
    inputs, outputs = (table[name].astype(np.int64) for name in ("input_tokens", "output_tokens"))
    if "arrival_s" in columns:
        arrivals = table["arrival_s"]
    elif "timestamp" in columns:
        arrivals = _since_first(table["timestamp"], text, columns, file)
    else:
        arrivals = _drawn(len(table), rate_per_s, seed, file)
    order = np.argsort(arrivals, kind="stable")
    return Requests(np.ascontiguousarray(arrivals[order]), inputs[order], outputs[order], name=_stem(file))


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


def poisson(count: int, rate_per_s: float, seed: int) -> NDArray[np.float64]:
    """Arrival times of a Poisson process, the first at zero."""
    gaps = np.random.Generator(np.random.PCG64(seed)).standard_exponential(count) / rate_per_s
    gaps[:1] = 0.0
    return np.cumsum(gaps)


def _lines(text: str, file: Path) -> str:
    """The text with plain line ends, and none of its lines longer than any row can be."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    for start in range(0, len(text) - MAX_LINE + 1, MAX_LINE):
        if text.find("\n", start, start + MAX_LINE) < 0:
            line = text.count("\n", 0, start) + 1
            raise InputError(f"is longer than {MAX_LINE:,} letters", where=f"{file} line {line}", hint=NOTHING_RUN)
    if '"' in text:
        _check_quoted(text, file)
    return text


def _check_quoted(text: str, file: Path) -> None:
    """Refuse a quoted cell that runs on over many lines, which the fast reading would gather at length."""
    rows = csv.reader(io.StringIO(text))
    try:
        deque(rows, maxlen=0)
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", where=f"{file} line {rows.line_num}", hint=NOTHING_RUN) from None


def _columns(text: str, file: Path) -> dict[str, int]:
    """Our column names and where they stand, in the order of the file."""
    try:
        header = next(csv.reader(io.StringIO(text[:MAX_LINE])), [])
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", where=f"{file} line 1", hint=NOTHING_RUN) from None
    columns: dict[str, int] = {}
    for index, cell in enumerate(header):
        name = COLUMNS.get(cell.strip().lower())
        if name in columns:
            raise InputError(f"the column {name} is given twice", where=f"{file} line 1", hint=NOTHING_RUN)
        if name:
            columns[name] = index
    for name in ("input_tokens", "output_tokens"):
        if name not in columns:
            hint = f"The first line names the columns: arrival_s,input_tokens,output_tokens. {NOTHING_RUN}"
            raise InputError(f"has no column {name}", where=f"{file} line 1", hint=hint)
    return columns


def _table(text: str, columns: dict[str, int], file: Path) -> NDArray[Any]:
    try:
        table = _parse(text, columns)
    except (ValueError, OverflowError):
        raise _located(text, columns, file) from None
    if _too_wide(text):
        raise _located(text, columns, file)
    if not table.size:
        raise InputError("has no requests", where=str(file), hint=NOTHING_RUN)
    for name in ("input_tokens", "output_tokens"):
        if not np.all((table[name] >= 1) & (table[name] <= MAX_TOKENS) & (table[name] == np.floor(table[name]))):
            raise _located(text, columns, file)
    if "arrival_s" in columns and not np.all((table["arrival_s"] >= 0) & (table["arrival_s"] <= MAX_ARRIVAL_S)):
        raise _located(text, columns, file)
    return table


def _too_wide(text: str) -> bool:
    """Whether some line has more cells than the first: thousands written with commas would shift the columns."""
    if '"' in text:
        widths = (len(row) for row in csv.reader(io.StringIO(text)))
        most = next(widths, 0)
        return any(width > most for width in widths)
    letters = np.frombuffer(text.encode(), np.uint8)
    commas = np.flatnonzero(letters == ord(","))
    ends = np.append(np.flatnonzero(letters == ord("\n")), letters.size)
    counts = np.diff(np.searchsorted(commas, ends), prepend=0)
    return bool((counts > counts[0]).any())


def _parse(text: str, columns: dict[str, int]) -> NDArray[Any]:
    start = text.find("\n") + 1 or len(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "input contained no data" is said by the caller
        table: NDArray[Any] = np.loadtxt(
            io.StringIO(text[start:]),
            dtype=[(name, TYPES[name]) for name in columns],
            delimiter=",",
            usecols=tuple(columns.values()),
            comments=None,
            quotechar='"',
            ndmin=1,
        )
    return table


def _located(text: str, columns: dict[str, int], file: Path) -> InputError:
    return first_fault(text, columns, file) or InputError("cannot be read", where=str(file), hint=NOTHING_RUN)


def _since_first(stamps: NDArray[Any], text: str, columns: dict[str, int], file: Path) -> NDArray[np.float64]:
    try:
        seconds = seconds_since_first(stamps)
    except ValueError:
        raise _located(text, columns, file) from None
    if seconds.max() > MAX_ARRIVAL_S:
        message = f"the times are more than {MAX_ARRIVAL_S:.0f} seconds apart"
        raise InputError(message, where=f"{file}, column timestamp", hint=NOTHING_RUN)
    return seconds


def _drawn(count: int, rate_per_s: float | None, seed: int, file: Path) -> NDArray[np.float64]:
    if rate_per_s is None:
        hint = f"Add --rate, or the column. {NOTHING_RUN}"
        raise InputError("has no column arrival_s, and no rate to draw arrivals at", where=str(file), hint=hint)
    return poisson(count, rate_per_s, seed)


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".csv")
