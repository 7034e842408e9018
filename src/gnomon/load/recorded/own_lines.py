"""Own traces as JSONL: the columns of the CSV form as keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnomon.errors import InputError
from gnomon.load.recorded.columns import LENGTHS, NAMES, ONE_MODEL, OPTIONAL, Columns, OneSize, name_numbers, texts_of
from gnomon.load.recorded.found import Found
from gnomon.load.recorded.lines import line_of
from gnomon.load.recorded.records import RecordFault, Row, each_row, known_keys, number, records, whole
from gnomon.load.rows import HIGHEST_PRIORITY, LONGEST_NAME, NOTHING_RUN
from gnomon.spec.loads.images import MOST_IMAGES
from gnomon.spec.workload import MAX_ARRIVAL_S, MAX_TOKENS

KEYS = ("arrival_s", *LENGTHS, *NAMES, *OPTIONAL)
SECOND = "One model serves a load: give each model's requests a file of their own."


def read_own_lines(file: Path, limit: int | None) -> Found:
    """The requests of a file, or its first `limit`."""
    kept, timed, last_s, model = Columns(), True, 0.0, None
    seen: set[str] = set()
    size = OneSize()
    for block in records(file, limit):
        rows: list[Row] = []
        for line, row in each_row(block, file, _row, None if limit is None else limit - kept.count):
            if not rows and not kept.count:
                timed = row["arrival_s"] is not None
                model = row["model"]
            _check_row(row, timed, last_s, model, f"{file} line {line}")
            tokens = row["image_tokens"] or 0
            if size.other(np.array([row["images"] or 0]), np.array([tokens])) is not None:
                raise InputError(size.fault(tokens), where=f"{file} line {line}, column image_tokens", hint=NOTHING_RUN)
            last_s = row["arrival_s"] or 0.0
            seen.update(key for key in (*NAMES, *OPTIONAL) if row[key] is not None)
            rows.append(row)
        if rows:
            kept.add(_columns(rows, timed))
            kept.take("image_tokens")
        if kept.count == limit:
            break
    if not kept.count:
        raise InputError("has no requests", where=str(file), hint=NOTHING_RUN)
    for name in (*NAMES, *OPTIONAL):
        if name in kept and (name not in seen or (name == "prefix_tokens" and "prefix_group" not in seen)):
            kept.take(name)
    if "think_s" in kept and "session" not in kept:
        raise InputError("has think_s, and no session", where=str(file), hint=NOTHING_RUN)
    if "prefix_group" in kept and "prefix_tokens" not in kept:
        raise InputError("has prefix_group, and no prefix_tokens", where=str(file), hint=NOTHING_RUN)
    if "image_tokens" in seen and "images" not in seen:
        raise InputError("has image_tokens, and no images", where=str(file), hint=NOTHING_RUN)
    requests, idle = kept.requests(file.name.removesuffix(".gz").removesuffix(".jsonl"))
    said = (*idle, *((ONE_MODEL,) if model is not None else ()))
    return Found(requests, timed, lambda place: f"line {line_of(file, place, 0)}", said, size.tokens)


def _row(row: Row) -> Row:
    """All columns of an object; none where a key is missing."""
    known_keys(row, KEYS)
    found: Row = {key: row.get(key) for key in KEYS}
    for name in LENGTHS:
        found[name] = whole(row, name, 1, MAX_TOKENS)
    for name in ("arrival_s", "think_s"):
        if found[name] is not None:
            found[name] = number(row, name, 0, MAX_ARRIVAL_S)
    for name, most in (("prefix_tokens", MAX_TOKENS), ("images", MOST_IMAGES), ("image_tokens", MAX_TOKENS)):
        if found[name] is not None:
            found[name] = whole(row, name, 0, most)
    if found["priority"] is not None:
        found["priority"] = whole(row, "priority", -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    for name in NAMES:
        found[name] = _name(found[name], name)
    shared = found["prefix_tokens"] or 0
    if shared > found["input_tokens"]:
        raise RecordFault(f"'{shared}' is more than the tokens of the prompt", "prefix_tokens")
    if shared and found["prefix_group"] is None:
        raise RecordFault(f"'{shared}' tokens are shared, and there is no prefix_group", "prefix_tokens")
    return found


def _name(value: Any, key: str) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise RecordFault(f"{value!r} is not a name", key)
    text = str(value).strip()
    if len(text) > LONGEST_NAME or not text.isascii():
        raise RecordFault(f"'{text[:40]}' is not a name of at most {LONGEST_NAME} ASCII letters", key)
    return text or None


def _check_row(row: Row, timed: bool, last_s: float, model: Any, where: str) -> None:
    """Raise InputError where a row does not agree with those before it."""
    arrival = row["arrival_s"]
    if (arrival is not None) != timed:
        message = "is missing" if timed else "is here and not in the first line"
        raise InputError(message, where=f"{where}, column arrival_s", hint=NOTHING_RUN)
    if timed and arrival < last_s:
        hint = f"Sort the lines by it. {NOTHING_RUN}"
        raise InputError("the request arrives before the one above it", where=f"{where}, column arrival_s", hint=hint)
    if row["model"] != model:
        message = f"asks for a second model, '{row['model']}' after '{model}'"
        raise InputError(message, where=f"{where}, column model", hint=f"{SECOND} {NOTHING_RUN}")


def _columns(rows: list[Row], timed: bool) -> dict[str, Any]:
    found: dict[str, Any] = {name: np.array([row[name] for row in rows], np.int64) for name in LENGTHS}
    if timed:
        found["arrival_s"] = np.array([row["arrival_s"] for row in rows])
    for name in OPTIONAL:
        found[name] = np.array([row[name] or 0 for row in rows], np.float64)
    for name in NAMES:
        if name != "model":
            found[name] = name_numbers(texts_of(row[name] for row in rows))
    return found
