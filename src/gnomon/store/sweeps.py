"""The file of a sweep's answers: a JSON line each, in the order of the questions, resumable wherever it was cut off.

Beside `FILE.jsonl` stands `FILE.jsonl.sweep`, which says whose answers these are, by which version of Gnomon and from
which files: to one that belongs to another sweep, or to the same sweep over other files, nothing is ever added.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from gnomon.errors import FAULT, InputError, MissingExtraError
from gnomon.load.files import read_json
from gnomon.load.sweep_files import changed_file
from gnomon.paths import write_text, written
from gnomon.spec.sweep import Sweep, compact

SCHEMA = "gnomon.sweep.file/1"
ROWS = ".jsonl"
PARQUET = ".parquet"
ANOTHER = "Write to another file, or delete this one."


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPart:
    """A sweep, or every so many of its questions."""

    sweep: Sweep
    first: int = 0
    """Index of its first question."""
    every: int = 1
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of every file that its questions depend on, by name."""

    def __len__(self) -> int:
        return len(range(self.first, len(self.sweep), self.every))

    def index(self, place: int) -> int:
        """The sweep's index of the question in a line of the part's file."""
        return self.first + place * self.every

    def line_begins(self, place: int) -> bytes:
        return self.sweep.prefix(self.index(place)).encode()

    @property
    def owner(self) -> dict[str, Any]:
        """What stands beside the file; answers of another version of Gnomon are not mixed with ours."""
        return {
            "schema": SCHEMA,
            "gnomon": import_module("gnomon").__version__,
            "sweep": self.sweep.digest,
            "questions": len(self.sweep),
            "shard": [self.first + 1, self.every],
            "files": dict(self.files),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAnswers:
    """A file of answers that is open for more."""

    file: BinaryIO
    done: int
    """Lines that are there."""
    repeated: int = 0
    """How many of them were asked again: they were faults of Gnomon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _IntactLines:
    done: int
    end: int
    """Bytes they take."""
    faults: tuple[int, ...]
    """Places of those that are faults of Gnomon."""


Again = Callable[[Sequence[int]], Iterator[str]]
"""Gives the lines of some places, computed again."""


@contextmanager
def opened(path: Path, part: SweepPart, again: Again | None = None) -> Iterator[OpenAnswers]:
    """The file, open for the answers that are still to come.

    What a killed program left of a line is cut off. Lines that are faults of Gnomon are computed `again` first, and
    take their places when all of them are there. Nobody else writes to the file in here.
    """
    if path.exists() and not path.is_file():
        raise InputError("is not a regular file", where=str(path), hint="Name a file of your own.")
    if _beside(path).exists() and "gnomon" not in _owner(path):
        raise InputError("is not a file of a sweep", where=str(_beside(path)), hint=ANOTHER)
    try:
        file = path.open("a+b")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from None
    with file:
        _lock(file, path)
        if path.stat().st_size:
            _check_owner(path, part)
        else:
            write_text(_beside(path), compact(part.owner) + "\n")
        file.seek(0)
        found = _intact(file, path, part)
        if not found.faults or again is None:
            if found.end < path.stat().st_size:
                file.truncate(found.end)
            yield OpenAnswers(file=file, done=found.done)
            return
        _replace_faults(file, path, found, again(found.faults))
    with opened(path, part) as renewed:
        yield replace(renewed, repeated=len(found.faults))


def _replace_faults(file: BinaryIO, path: Path, found: _IntactLines, lines: Iterator[str]) -> None:
    """Write the file anew with these lines in the places of faults; until all are there the old one stays."""
    places = frozenset(found.faults)
    file.seek(0)
    with written(path) as out:
        for place in range(found.done):
            before = file.readline()
            out.write(next(lines) + "\n" if place in places else before.decode())
        next(lines, None)  # whoever computed them is done


def append(file: BinaryIO, line: str) -> None:
    """One line, handed to the system before the next one is worked on."""
    file.write(line.encode() + b"\n")
    file.flush()


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, one at a time."""
    with path.open("rb") as file:
        yield from map(json.loads, file)


def joined(parts: Sequence[Path], path: Path, whole: SweepPart) -> None:
    """The files of all shards of a sweep as one, as if it had been run whole."""
    count = len(parts)
    by_shard: dict[int, Path] = {}
    for file in parts:
        first = _shard(file, whole, count)
        if first in by_shard:
            raise InputError(f"is shard {first + 1} of {count}, and so is {by_shard[first]}", where=str(file))
        by_shard[first] = file
    if path.exists() and path.stat().st_size:
        _check_owner(path, whole)
    for first, file in by_shard.items():
        _check_finished(file, replace(whole, first=first, every=count))
    files = [by_shard[first].open("rb") for first in range(count)]
    try:
        write_text(_beside(path), compact(whole.owner) + "\n")
        with written(path) as out:
            for index in range(len(whole.sweep)):
                out.write(files[index % count].readline().decode())
    finally:
        for one in files:
            one.close()


def to_parquet(source: Path, target: Path) -> None:
    """The lines as a table: nested fields as columns with dots in their names, lists as JSON."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("duckdb", "parquet", "writing Parquet") from None
    kinds: dict[str, str] = {}
    for row in rows(source):
        for name, value in _flat(row):
            kinds[name] = _wider(kinds.get(name, ""), value)
    flat, made = (target.with_name(f".{target.name}.{kind}.partial") for kind in ("rows", "table"))
    try:
        with flat.open("w", encoding="utf-8") as file:
            for row in rows(source):
                file.write(compact(dict(_flat(row))) + "\n")
        columns = ", ".join(f"{_quoted(name)}: '{kind or 'VARCHAR'}'" for name, kind in kinds.items())
        read = f"read_json({_quoted(str(flat))}, format='newline_delimited', columns={{{columns}}})"
        with duckdb.connect(config={"threads": 1}) as session:
            session.execute(f"COPY (SELECT * FROM {read}) TO {_quoted(str(made))} (FORMAT parquet, COMPRESSION zstd)")
        made.replace(target)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(target)) from None
    finally:
        for file_left in (flat, made):
            file_left.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".sweep")


def _lock(file: BinaryIO, path: Path) -> None:
    with suppress(ImportError):  # a system without such locks goes without
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise _busy(path) from None
        if os.fstat(file.fileno()).st_ino != path.stat().st_ino:  # another sweep has just put a new file in its place
            raise _busy(path)


def _busy(path: Path) -> InputError:
    return InputError("is being written by another sweep", where=str(path), hint="Wait for it.")


def _owner(path: Path) -> dict[str, Any]:
    beside = _beside(path)
    if not beside.is_file():
        raise InputError(f"is not the file of a sweep: there is no '{beside.name}' next to it", where=str(path),
                         hint=ANOTHER)  # fmt: skip
    return read_json(beside)


def _check_owner(path: Path, part: SweepPart) -> None:
    found, ours = _owner(path), part.owner
    shard = found.get("shard")
    differs = {
        "gnomon": f"holds answers of Gnomon {found.get('gnomon')}, and this is {ours['gnomon']}",
        "shard": f"holds shard {'/'.join(map(str, shard)) if isinstance(shard, list) else shard} of this sweep",
    }
    recorded = found.pop("files", {})
    for name, value in ours.items():
        if name != "files" and found.get(name) != value:
            raise InputError(differs.get(name, "holds the answers of another sweep"), where=str(path), hint=ANOTHER)
    changed = changed_file(recorded if isinstance(recorded, dict) else {}, part.files)
    if changed:
        name, what = changed
        hint = "Give a new --out, or put the file back as it was."
        raise InputError(f"holds answers computed before '{name}' {what}", where=str(path), hint=hint)


def check_unchanged(part: SweepPart, files: Mapping[str, str], path: Path) -> None:
    """Raise where a file that questions depend on is not what it was when the sweep began."""
    changed = changed_file(part.files, files)
    if changed:
        name, what = changed
        hint = "Some answers are of the old file and some of the new: give a new --out."
        raise InputError(f"'{name}' {what} while the sweep ran", where=str(path), hint=hint)


def _intact(file: BinaryIO, path: Path, part: SweepPart) -> _IntactLines:
    """The lines that are complete."""
    done = end = 0
    faults = []
    for line in file:
        if not line.endswith(b"\n"):
            break
        row = _row(line) if done < len(part) and line.startswith(part.line_begins(done)) else None
        if row is None:
            where = f"{path} line {done + 1}"
            raise InputError("is not the answer to this question of the sweep", where=where, hint=ANOTHER)
        if is_fault(row):
            faults.append(done)
        done += 1
        end += len(line)
    return _IntactLines(done=done, end=end, faults=tuple(faults))


def is_fault(row: Mapping[str, Any]) -> bool:
    """Whether a line is a fault of Gnomon: not an answer, and no more final than the fault is."""
    return bool(row.get("error")) and row["error"].get("code") == FAULT


def _row(line: bytes) -> dict[str, Any] | None:
    """An object with the answer of a question, or with an error that says what was wrong; of other lines, none."""
    try:
        row: dict[str, Any] = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    answer, error = row.get("answer"), row.get("error")
    if isinstance(error, dict):
        return row if answer is None and isinstance(error.get("message"), str) else None
    return row if isinstance(answer, dict) and isinstance(answer.get("schema"), str) else None


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _shard(path: Path, whole: SweepPart, count: int) -> int:
    """Which of so many shards a file is, from zero."""
    given = _owner(path).get("shard")
    if not (isinstance(given, list) and len(given) == 2 and given[1] == count and given[0] in range(1, count + 1)):
        shown = "/".join(map(str, given)) if isinstance(given, list) else "unknown"
        raise InputError(f"is shard {shown}, and {count} files are joined", where=str(path))
    _check_owner(path, replace(whole, first=given[0] - 1, every=count))
    return int(given[0]) - 1


def _check_finished(path: Path, part: SweepPart) -> None:
    with path.open("rb") as file:
        done = _intact(file, path, part).done
    if done < len(part):
        hint = f"Re-run its shard, which resumes where it stopped: --shard {part.first + 1}/{part.every}."
        raise InputError(f"has {done:,} of {len(part):,} answers", where=str(path), hint=hint)


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(item, Mapping) and item:
            yield from _flat(item, name)
        else:
            yield name, compact(item) if isinstance(item, (list, Mapping)) else item


_KINDS = ("", "BOOLEAN", "BIGINT", "DOUBLE", "VARCHAR")


def _wider(kind: str, value: Any) -> str:
    """The column type that holds what it held before and this value too."""
    own = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}.get(type(value), "")
    if isinstance(value, int) and abs(value) >= 2**63:
        own = "DOUBLE"
    if "BOOLEAN" in (kind, own) and kind != own and kind and own:
        return "VARCHAR"
    return max(kind, own, key=_KINDS.index)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
