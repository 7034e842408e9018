"""Files of lengths: one number of tokens per line, or CSV or JSONL with a column of lengths and, of a histogram, one of
counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.errors import InputError, shown
from gnomon.load.files import as_path, reading
from gnomon.load.recorded.lines import MAX_FILE, MAX_RECORD, text_parts
from gnomon.load.rows import NOTHING_RUN
from gnomon.spec.workload import MAX_TOKENS, Ints

LENGTHS = ("length", "tokens", "num_tokens", "n_tokens", "input_tokens")
"""Columns of lengths; the first is what transformers' samplers read."""
COUNT = "count"
MOST_COUNT = 10**12
TOKENS = "whole number of tokens"
Line = tuple[int, str]
"""Its number and text."""


def read_lengths(path: str | Path) -> tuple[Ints, Ints | None]:
    """The lengths of a file, plain or `.gz`, and how often each comes where the file says so."""
    file = as_path(path)
    tokens: list[Ints] = []
    counts: list[Ints] = []
    columns: Sequence[str] | None = None
    with reading(file):
        for text, first in text_parts(file, MAX_FILE, MAX_RECORD):
            lines = [(first + place, line.strip()) for place, line in enumerate(text.split("\n")) if line.strip()]
            if columns is None and lines:
                columns, named = _columns(lines[0][1], file)
                lines = lines[1:] if named else lines
            each, often = _part(lines, columns or (), file)
            tokens.append(each)
            counts.append(often)
    found, often = np.concatenate(tokens), np.concatenate(counts)
    if not found.size:
        raise InputError("has no lengths", where=str(file), hint=NOTHING_RUN)
    return found, often if often.size else None


def _columns(line: str, file: Path) -> tuple[tuple[str, ...], bool]:
    """The columns of a file by its first line, and whether that names them. A single name may be any."""
    if line.startswith("{"):
        return tuple(_record(line, f"{file} line 1")), False
    cells = tuple(cell.strip().strip('"').lower() for cell in line.split(","))
    if cells[0][:1].isdigit() or (cells[0].startswith("-") and len(cells) == 1):
        return () if len(cells) == 1 else (LENGTHS[0], COUNT), False
    if len(cells) > 1 and not set(cells) & set(LENGTHS):
        raise InputError(f"has no column {' or '.join(LENGTHS)}", where=f"{file} line 1", hint=NOTHING_RUN)
    return cells, True


def _part(lines: Sequence[Line], columns: Sequence[str], file: Path) -> tuple[Ints, Ints]:
    """Lengths and counts of some lines."""
    if len(columns) < 2 and not any(line.startswith("{") for _, line in lines[:1]):
        plain = [_whole(line, f"{file} line {number}", TOKENS, MAX_TOKENS) for number, line in lines]
        return np.array(plain, np.int64), np.zeros(0, np.int64)
    found = list(_cells(lines, columns, file))
    often = [count for _, count in found if count is not None]
    return np.array([tokens for tokens, _ in found], np.int64), np.array(often, np.int64)


def _cells(lines: Sequence[Line], columns: Sequence[str], file: Path) -> Iterator[tuple[int, int | None]]:
    named = next((name for name in LENGTHS if name in columns), columns[0] if columns else "")
    for number, line in lines:
        where = f"{file} line {number}"
        if line.startswith("{"):
            row: dict[str, Any] = _record(line, where)
        elif len(columns) < 2:
            row = {named: line}
        else:
            cells = line.split(",")
            if len(cells) != len(columns):
                message = f"the line has {len(cells)} cells, and the first line names {len(columns)}"
                raise InputError(message, where=where, hint=NOTHING_RUN)
            row = dict(zip(columns, cells, strict=True))
        if named not in row:
            raise InputError(f"has no {named}", where=where, hint=NOTHING_RUN)
        tokens = _whole(row[named], where, TOKENS, MAX_TOKENS)
        yield tokens, _whole(row.get(COUNT, ""), where, "count", MOST_COUNT) if COUNT in columns else None


def _record(line: str, where: str) -> dict[str, Any]:
    """A line of JSONL: an object with a length."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError("is not JSON", where=where, hint=NOTHING_RUN) from None
    if not isinstance(found, dict) or not set(found) & set(LENGTHS):
        raise InputError(f"has no {' or '.join(LENGTHS)}", where=where, hint=NOTHING_RUN)
    return found


def _whole(cell: Any, where: str, what: str, most: int) -> int:
    text = str(cell).strip() if not isinstance(cell, bool) else ""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:15]) <= most:
        raise InputError(f"{shown(str(cell))} is not a {what} from 1 to {most:,}", where=where, hint=NOTHING_RUN)
    return int(text)
