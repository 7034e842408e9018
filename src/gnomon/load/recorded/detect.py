"""Which format a file is in, by what it begins with."""

from __future__ import annotations

from pathlib import Path

from gnomon.errors import InputError
from gnomon.load.files import blocks
from gnomon.load.recorded.aiperf import read_aiperf
from gnomon.load.recorded.found import Found
from gnomon.load.recorded.lines import MAX_FILE, MAX_JSON, MAX_RECORD
from gnomon.load.recorded.mooncake import read_mooncake
from gnomon.load.recorded.objects import READERS, read_object
from gnomon.load.recorded.own_lines import read_own_lines
from gnomon.load.recorded.records import RecordFault, parsed
from gnomon.load.recorded.sharegpt import read_sharegpt
from gnomon.load.recorded.table import read_table
from gnomon.load.rows import NOTHING_RUN

TURNS = "only conversations (ShareGPT) have turns to take"


def read_requests(file: Path, limit: int | None, turns: int = 1, think_s: float = 0.0) -> Found:
    """The requests of a file of any known format, or its first `limit`; of conversations, sessions of so many
    `turns`."""
    largest = MAX_JSON if ".json" in file.name.lower() else MAX_FILE
    start = next(blocks(file, largest if limit is None else None), b"").removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"["):
        return read_sharegpt(file, limit, turns, think_s)
    if turns > 1:
        hint = f"A column session with think_s makes sessions of a trace. {NOTHING_RUN}"
        raise InputError(f"{TURNS}, and {file} has none", where="--turns", hint=hint)
    if not start.startswith(b"{"):
        return read_table(file, limit)
    keys = _first_keys(start)
    if keys is None or any(key in keys for key in READERS):
        return read_object(file)
    if "hash_ids" in keys or "input_length" in keys:
        return read_mooncake(file, limit)
    if {"metadata", "metrics"} <= keys:
        return read_aiperf(file, limit)
    if "input_tokens" in keys or "output_tokens" in keys:
        return read_own_lines(file, limit)
    return read_object(file)


def _first_keys(start: bytes) -> set[str] | None:
    """The keys of the object in the first line; none where that is no whole object."""
    line, end, _ = start[: MAX_RECORD + 1].partition(b"\n")
    try:
        found = parsed(line.decode("utf-8"))
    except (RecordFault, UnicodeDecodeError):
        # A damaged line of many is for the reader of lines to name.
        return {"input_tokens"} if end and line.rstrip().endswith(b"}") else None
    return set(found) if isinstance(found, dict) else None
