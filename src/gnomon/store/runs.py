"""Entries of the run history, one packed JSON file each, under `GNOMON_HOME` or the user's data folder.

A file's name is its time in nanoseconds, or the next after all that are there, and its id: the order is known without
opening any. Plain JSON files, which earlier versions wrote, are read as well.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.load.answers import answer_from_dict
from gnomon.load.files import MIB, as_path, is_file, read_json, read_text, reading
from gnomon.paths import clear_partials, home, write_bytes
from gnomon.spec.answers import Result

SCHEMA = "gnomon.run/1"
KEEP = 500
"""Entries kept; older ones go as new ones come."""
KEEP_BYTES = 256 * MIB
"""Of all entries together; the oldest go first."""
MOST_FILE = 64 * MIB
"""Of an answer in a file."""
MAX_BYTES = 128 * MIB
"""Of one entry, unpacked."""
MOST_DIGITS = 24
"""Of nanoseconds in a file's name: a few more than any time of ours has."""
LATEST_S = 32_503_680_000.0
"""The year 3000: a later entry is not genuine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One saved answer. `saved_s` is seconds since 1970."""

    id: str
    kind: str
    saved_s: float
    payload: Mapping[str, Any]

    @property
    def where(self) -> str:
        """What errors call it."""
        return f"run {self.id}"

    @property
    def answer(self) -> Result:
        """The answer as the command gave it. Raises InputError, naming the field, where it is damaged."""
        return answer_from_dict(self.payload, self.where)


def save(kind: str, payload: Mapping[str, Any]) -> str:
    """Keep an answer and give its id, which depends on nothing but its content.

    A history that cannot be written costs a warning on stderr, never the answer.
    """
    body = json.loads(json.dumps(payload, default=_plain))
    content = json.dumps([kind, body], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    id = f"{kind.partition('.')[0]}-{digest}"
    now = time.time_ns()
    record = {"schema": SCHEMA, "id": id, "kind": kind, "saved_s": now / 1e9, "payload": body}
    try:
        folder = home() / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        after = max(map(_saved_ns, _sorted(folder)), default=0) + 1  # clocks are set back, names made up
        write_bytes(folder / f"{max(now, after):020d}.{id}.json.gz", _packed(record))
        _tidy(folder, id)
    except (OSError, RuntimeError, InputError) as error:
        _warn(f"warning: this run was not kept in the history: {error}")
    return id


def _packed(record: Mapping[str, Any]) -> bytes:
    data = json.dumps(record).encode()
    if len(data) > MAX_BYTES:
        raise InputError(f"it is larger than {MAX_BYTES // MIB} MiB")
    return gzip.compress(data, mtime=0)


def load(ref: str = "last", *, kind: str = "") -> dict[str, Any]:
    """The payload of an entry: by id, by the beginning of one, or the `last` (of a kind)."""
    return dict(entry(ref, kind=kind).payload)


def entry(ref: str = "last", *, kind: str = "") -> Entry:
    """The entry of a reference, as in `load`."""
    if ref == "last":
        found = next(entries(kind), None)
        if found is None:
            what = f"'{kind}' run" if kind else "run"
            raise InputError(f"there is no {what} in the history yet", hint=f"It is kept in {home()}.")
        return found
    return _read(_match(ref, _files()))


def answer_of(what: str | Path) -> tuple[str, str, Result]:
    """The answer of a run's id, of `last` or of a JSON file: its name, what errors call it, and the answer."""
    path = as_path(what)
    if isinstance(what, Path) or path.suffix == ".json" or (what != "last" and is_file(path)):
        payload = read_json(path, limit=MOST_FILE)
        if "error" in payload:
            raise InputError("holds an error, not an answer", where=str(path))
        return str(path), str(path), answer_from_dict(payload, str(path))
    found = entry(what)
    return found.id, found.where, found.answer


def history(limit: int = 20) -> tuple[Entry, ...]:
    """The newest entries first. A damaged one is left out, with a warning on stderr."""
    if not 0 <= limit <= sys.maxsize:
        raise InputError(f"'{limit}' entries cannot be listed", where="limit")
    return tuple(islice(entries(), limit))


def entries(kind: str = "") -> Iterator[Entry]:
    """The entries of a kind, newest first, each read when it is asked for."""
    for file in _files():
        try:
            found = _read(file)
        except InputError as error:
            _warn(f"warning: {error}")
            continue
        if found.kind.startswith(kind):
            yield found


def _files() -> list[Path]:
    """The history's files, newest first."""
    try:
        return _sorted(home() / "runs")
    except (OSError, RuntimeError):
        return []


def _sorted(folder: Path) -> list[Path]:
    files = [*folder.glob("*.*-*.json"), *folder.glob("*.*-*.json.gz")]
    return sorted(files, key=lambda file: (_saved_ns(file), file.name), reverse=True)


def _saved_ns(file: Path) -> int:
    """The time that a file's name begins with; the least of all where there is none."""
    digits = file.name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS else -1


def _id(file: Path) -> str:
    return file.name.split(".")[1]


def _match(ref: str, files: list[Path]) -> Path:
    by_id = {_id(file): file for file in reversed(files)}
    if ref in by_id:
        return by_id[ref]
    near = [id for id in by_id if ref and (id.startswith(ref) or id.partition("-")[2].startswith(ref))]
    if len(near) == 1:
        return by_id[near[0]]
    if near:
        raise InputError(f"'{ref}' begins more than one run: {', '.join(sorted(near)[:5])}", hint="Write more of it.")
    raise unknown_name("run", ref, list(by_id) or ["last"], hint="`last` is the newest.")


def _read(file: Path) -> Entry:
    try:
        with reading(file):
            record = json.loads(read_text(file, MAX_BYTES))
        if record["schema"] != SCHEMA or not isinstance(record["payload"], dict):
            raise ValueError("another schema")
        if not 0 <= float(record["saved_s"]) < LATEST_S:
            raise ValueError("no time")
        return Entry(
            id=str(record["id"]),
            kind=str(record["kind"]),
            saved_s=float(record["saved_s"]),
            payload=record["payload"],
        )
    except (InputError, OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError):
        raise InputError("is a damaged run of the history", where=str(file), hint="Delete the file.") from None


def _tidy(folder: Path, id: str) -> None:
    """Drop earlier copies of the entry just written, what is beyond `KEEP` and `KEEP_BYTES`, and what killed programs
    left; whoever else tidies up at the same time."""
    files = _sorted(folder)
    newest, *copies = [file for file in files if _id(file) == id] or files[:1]
    kept, total = 1, newest.stat().st_size
    for file in (file for file in files if file != newest):
        with suppress(OSError):
            size = file.lstat().st_size
            if file in copies or kept == KEEP or total + size > KEEP_BYTES:
                file.unlink(missing_ok=True)
            else:
                kept, total = kept + 1, total + size
    clear_partials(folder)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


@cache
def _warn(message: str) -> None:
    """Warn on stderr, once per process."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(message, file=sys.stderr)
