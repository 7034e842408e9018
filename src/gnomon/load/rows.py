"""The plain row-by-row reading of a part of a trace: it finds the first fault once the fast reading has failed."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from gnomon.errors import InputError
from gnomon.load.stamps import is_time
from gnomon.spec.loads.images import MOST_IMAGES
from gnomon.spec.workload import MAX_ARRIVAL_S, MAX_TOKENS

NOTHING_RUN = "Nothing was run."
HIGHEST_PRIORITY = 1_000_000
LONGEST_NAME = 63
"""Letters of the name of a group, an adapter, a session or a model."""
IMAGES = ("images", "image_tokens")
NAMES = ("prefix_group", "adapter", "session", "model")


def first_fault(text: str, columns: Sequence[str], file: Path, line: int, *, least: int = 1) -> InputError | None:
    """The first cell that is wrong in lines of a file, the first of them its `line`, as an error naming the place."""
    rows = csv.reader(io.StringIO(text))
    try:
        for row in rows:
            where = f"{file} line {line + rows.line_num - 1}"
            if not row:
                continue
            if len(row) > len(columns):
                message = f"the line has {len(row)} cells, and the first line names {len(columns)}"
                return InputError(message, where=where, hint=NOTHING_RUN)
            for index, name in enumerate(columns):
                fault = _missing(row, index) or _fault(name, row[index].strip(), least)
                if fault:
                    return InputError(fault, where=f"{where}, column {name}", hint=NOTHING_RUN)
            fault = prefix_fault(dict(zip(columns, row, strict=True)))
            if fault:
                return InputError(fault, where=f"{where}, column prefix_tokens", hint=NOTHING_RUN)
    except csv.Error as error:
        return InputError(f"is not CSV: {error}", where=f"{file} line {line + rows.line_num - 1}", hint=NOTHING_RUN)
    return None


def not_rising(text: str, place: int, column: str, file: Path, line: int) -> InputError:
    """The error of the request at that place among the lines, which arrives before the one above it."""
    full = (number for number, row in enumerate(text.split("\n")) if row.strip())
    number = next(islice(full, place, None), 0)
    hint = f"Sort the lines by it. {NOTHING_RUN}"
    where = f"{file} line {line + number}, column {column}"
    return InputError("the request arrives before the one above it", where=where, hint=hint)


def _missing(row: list[str], index: int) -> str:
    return f"the line has only {len(row)} cells" if index >= len(row) else ""


def prefix_fault(row: Mapping[str, str]) -> str:
    """What is wrong between the cells of a row."""
    shared = _number(row.get("prefix_tokens", "").strip() or "0") or 0.0
    if shared > (_number(row.get("input_tokens", "").strip()) or 0.0):
        return f"'{shared:.0f}' is more than the tokens of the prompt"
    if shared and not row.get("prefix_group", "").strip():
        return f"'{shared:.0f}' tokens are shared, and there is no prefix_group"
    return ""


def _fault(name: str, cell: str, least: int) -> str:
    cell = " ".join(cell.split())
    shown = cell if len(cell) <= 40 else cell[:37] + "..."
    if name == "timestamp":
        return "" if is_time(cell) else f"'{shown}' is not a date and time"
    if name.startswith("unused"):
        return ""
    if name in NAMES:
        return _name_fault(cell, shown)
    if not cell and name in ("prefix_tokens", "priority", "think_s", *IMAGES):
        return ""
    value = _number(cell)
    if name in ("arrival_s", "think_s"):
        if value is None or not value >= 0:
            return f"'{shown}' is not a time of zero or more seconds"
        return f"'{shown}' is more than {MAX_ARRIVAL_S:.0f} seconds" if value > MAX_ARRIVAL_S else ""
    if name == "priority":
        fine = value is not None and abs(value) <= HIGHEST_PRIORITY and value % 1 == 0
        return "" if fine else f"'{shown}' is not a whole number up to {HIGHEST_PRIORITY:,}"
    least = 0 if name in ("prefix_tokens", *IMAGES) else least
    if value is None or not value >= least or value % 1:
        return f"'{shown}' is not a {'positive whole number' if least else 'whole number of zero or more'}"
    if name == "images":
        return f"'{shown}' is more than {MOST_IMAGES:,} images" if value > MOST_IMAGES else ""
    return f"'{shown}' is more than {MAX_TOKENS:,} tokens" if value > MAX_TOKENS else ""


def _name_fault(cell: str, shown: str) -> str:
    if not cell.isascii():
        return f"'{shown}' has letters that are not ASCII"
    return f"'{shown}' is longer than {LONGEST_NAME} letters" if len(cell) > LONGEST_NAME else ""


def _number(cell: str) -> float | None:
    try:
        return float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None
