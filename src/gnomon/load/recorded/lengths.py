"""Files of lengths, one number of tokens per line; the first line may be a name."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnomon.errors import InputError
from gnomon.load.files import as_path, reading
from gnomon.load.recorded.lines import MAX_FILE, text_parts
from gnomon.load.rows import NOTHING_RUN
from gnomon.spec.workload import MAX_TOKENS, Ints


def read_lengths(path: str | Path) -> Ints:
    """The lengths of a file, plain or `.gz`."""
    file, parts = as_path(path), []
    with reading(file):
        for text, first in text_parts(file, MAX_FILE):
            lines = [(first + place, line.strip()) for place, line in enumerate(text.split("\n")) if line.strip()]
            if lines and lines[0][0] == 1 and not lines[0][1][0].isdigit():
                lines = lines[1:]
            parts.append(np.array([_tokens(line, f"{file} line {number}") for number, line in lines], np.int64))
    found = np.concatenate(parts)
    if not found.size:
        raise InputError("has no lengths", where=str(file), hint=NOTHING_RUN)
    return found


def _tokens(line: str, where: str) -> int:
    if not line.isascii() or not line.isdigit() or not 1 <= int(line[:12]) <= MAX_TOKENS:
        shown = line if len(line) <= 40 else line[:37] + "..."
        message = f"'{shown}' is not a whole number of tokens from 1 to {MAX_TOKENS:,}"
        raise InputError(message, where=where, hint=NOTHING_RUN)
    return int(line)
