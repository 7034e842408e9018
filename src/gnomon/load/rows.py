"""The plain row-by-row reading of a trace: it finds the first fault once the fast reading has failed."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from gnomon.errors import InputError
from gnomon.load.stamps import is_time

MAX_TOKENS = 100_000_000
MAX_ARRIVAL_S = 1e9
NOTHING_RUN = "Nothing was run."


def first_fault(text: str, columns: dict[str, int], file: Path) -> InputError | None:
    """The first cell that is wrong, as an error naming its line and column."""
    rows = csv.reader(io.StringIO(text))
    named = 0
    try:
        for number, row in enumerate(rows):
            if number == 0 or not row:
                named = named or len(row)
                continue
            if len(row) > named:
                told = f"the line has {len(row)} cells, and the first line names {named}"
                return InputError(told, where=f"{file} line {rows.line_num}", hint=NOTHING_RUN)
            for name, index in columns.items():
                fault = _missing(row, index) or _fault(name, row[index].strip())
                if fault:
                    where = f"{file} line {rows.line_num}, column {name}"
                    return InputError(fault, where=where, hint=NOTHING_RUN)
    except csv.Error as error:
        return InputError(f"is not CSV: {error}", where=f"{file} line {rows.line_num}", hint=NOTHING_RUN)
    return None


def _missing(row: list[str], index: int) -> str:
    return f"the line has only {len(row)} cells" if index >= len(row) else ""


def _fault(name: str, cell: str) -> str:
    cell = " ".join(cell.split())
    shown = cell if len(cell) <= 40 else cell[:37] + "..."
    if name == "timestamp":
        return "" if is_time(cell) else f"'{shown}' is not a date and time"
    value = _number(cell)
    if name == "arrival_s":
        if value is None or not value >= 0:
            return f"'{shown}' is not a time of zero or more seconds"
        return f"'{shown}' is more than {MAX_ARRIVAL_S:.0f} seconds" if value > MAX_ARRIVAL_S else ""
    if value is None or not value >= 1 or value % 1:
        return f"'{shown}' is not a positive whole number"
    return f"'{shown}' is more than {MAX_TOKENS:,} tokens" if value > MAX_TOKENS else ""


def _number(cell: str) -> float | None:
    try:
        return float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None
