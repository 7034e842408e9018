"""Text of long files in parts of whole lines, with the number of the first line of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gnomon.errors import InputError
from gnomon.load.files import MIB, blocks, decoded
from gnomon.load.rows import NOTHING_RUN

MAX_FILE = 1024 * MIB
"""Bytes of unpacked text that are read of a trace."""
MAX_JSON = 4 * MAX_FILE
"""Of JSON, whose keys take more letters than its values."""
MAX_LINES = 10_000_000
"""Lines of a trace: read, they take a quarter of a gigabyte."""
MAX_LINE = 65536
MAX_RECORD = MIB
"""Letters of a line that is a JSON object."""


def check_length(file: Path, largest: int = MAX_FILE) -> None:
    """Refuse a file of more lines than are kept before any of them is read."""
    lines = 0
    for data in blocks(file, largest):
        lines += data.count(b"\n") or data.count(b"\r")
        if lines > MAX_LINES:
            raise _too_many(file)


def text_parts(file: Path, limit: int | None, longest: int = MAX_LINE) -> Iterator[tuple[str, int]]:
    """The text in parts of whole lines with plain line ends, each with the number of its first line."""
    line, left = 1, b""
    for data in blocks(file, limit):
        data, held = left + data, b""
        if data.endswith(b"\r"):  # perhaps one half of a line end
            data, held = data[:-1], b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = data.rfind(b"\n") + 1
        _check_lines(data, file, line, longest)
        if end:
            yield decoded(data[:end], file, line), line
            line += data.count(b"\n", 0, end)
            if line > MAX_LINES:
                raise _too_many(file)
        left = data[end:] + held
    last = left.removesuffix(b"\r") + b"\n"
    _check_lines(last, file, line, longest)
    yield decoded(last, file, line), line


def line_of(file: Path, place: int, header: int) -> int:
    """The line that holds the row at a place, also of a file that was repeated; empty lines hold none, nor do those of
    the header."""
    held: list[int] = []
    for text, first in text_parts(file, None, MAX_RECORD):
        held += [first + at for at, row in enumerate(text.split("\n")[:-1]) if row and first + at > header]
        if len(held) > place:
            return held[place]
    return held[place % len(held)]


def _too_many(file: Path) -> InputError:
    hint = f"--requests N reads its first N lines alone. {NOTHING_RUN}"
    return InputError(f"has more than {MAX_LINES:,} lines", where=str(file), hint=hint)


def _check_lines(data: bytes, file: Path, line: int, longest: int) -> None:
    """Refuse a line that is longer than any request can be, and a quoted cell that runs on over its end."""
    for start in range(0, len(data) - longest + 1, longest):
        if data.find(b"\n", start, start + longest) < 0:
            line += data.count(b"\n", 0, start)
            raise InputError(f"is longer than {longest:,} letters", where=f"{file} line {line}", hint=NOTHING_RUN)
    if longest == MAX_LINE and b'"' in data:
        rows = data[: data.rfind(b"\n") + 1].split(b"\n")
        odd = next((place for place, row in enumerate(rows) if row.count(b'"') % 2), None)
        if odd is not None:
            raise InputError("a quoted cell has no end", where=f"{file} line {line + odd}", hint=NOTHING_RUN)
