"""Traces with a JSON object per line: read block by block, each line made into the values of its columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.errors import shown as quoted
from gnomon.load.files import RepeatedKeyError, without_repeats
from gnomon.load.recorded.lines import MAX_JSON, MAX_RECORD, check_length, text_parts
from gnomon.load.rows import NOTHING_RUN

Row = dict[str, Any]


class RecordFault(Exception):
    """What is wrong with a line, and with which key of it."""

    def __init__(self, message: str, key: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message, self.key, self.hint = message, key, hint


def records(file: Path, limit: int | None) -> Iterator[list[tuple[int, Row]]]:
    """The objects of a file by blocks, each with its line."""
    if limit is None:
        check_length(file, MAX_JSON)
    for text, first in text_parts(file, MAX_JSON if limit is None else None, MAX_RECORD):
        yield [
            (first + place, _object(line, file, first + place))
            for place, line in enumerate(text.split("\n"))
            if line.strip()
        ]


def each_row(
    rows: list[tuple[int, Row]], file: Path, read: Callable[[Row], Any], most: int | None
) -> Iterator[tuple[int, Any]]:
    """What each object says, with its line, up to `most` that are not none; a fault is raised with file, line and
    key."""
    kept = 0
    for line, row in rows:
        if most is not None and kept >= most:
            return
        try:
            found = read(row)
        except RecordFault as fault:
            where = f"{file} line {line}" + (f", column {fault.key}" if fault.key else "")
            raise InputError(fault.message, where=where, hint=f"{fault.hint} {NOTHING_RUN}".strip()) from None
        kept += found is not None
        yield line, found


def number(row: Row, key: str, least: float, most: float) -> float:
    """A number of a range. Raises RecordFault."""
    value = row.get(key)
    if key not in row or value is None:
        raise RecordFault("is missing", key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        kind = "a number" if least < 0 else "a number of zero or more"
        raise RecordFault(f"{quoted(value)} is not {kind}", key)
    if value > most:
        raise RecordFault(f"{quoted(value)} is more than {most:,.0f}", key)
    return float(value)


def whole(row: Row, key: str, least: int, most: int) -> int:
    """A whole number of a range. Raises RecordFault."""
    value = row.get(key)
    if key not in row or value is None:
        raise RecordFault("is missing", key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least or value % 1:
        kind = {0: "a whole number of zero or more", 1: "a positive whole number"}.get(least, "a whole number")
        raise RecordFault(f"{quoted(value)} is not {kind}", key)
    if value > most:
        raise RecordFault(f"{quoted(value)} is more than {most:,}", key)
    return int(value)


def known_keys(row: Row, known: tuple[str, ...]) -> None:
    """Raise RecordFault where an object has another key."""
    for key in row:
        if key not in known:
            raise RecordFault(f"unknown key '{key}'", hint=f"Known: {', '.join(known)}.")


def parsed(text: str) -> Any:
    """A JSON value. Raises RecordFault, whose message begins with `is` or `has`."""
    try:
        return json.loads(text, object_pairs_hook=without_repeats)
    except json.JSONDecodeError as error:
        raise RecordFault(f"is not JSON: {error.msg}") from None
    except RecursionError:
        raise RecordFault("is nested too deeply") from None
    except RepeatedKeyError as error:
        raise RecordFault(f"has the key '{error}' twice") from None
    except ValueError:
        raise RecordFault("holds a number that is too long") from None


def _object(line: str, file: Path, number: int) -> Row:
    where = f"{file} line {number}"
    try:
        found = parsed(line)
    except RecordFault as fault:
        raise InputError(fault.message, where=where, hint=NOTHING_RUN) from None
    if not isinstance(found, dict):
        raise InputError("is not a JSON object", where=where, hint=NOTHING_RUN)
    return found
