"""The file of a sweep's answers: a JSON line each, in the order of the questions, resumable wherever it was cut off.

Beside `FILE.jsonl` stands `FILE.jsonl.sweep`, which says whose answers these are: a file that belongs to another sweep
is never added to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from gnomon.errors import InputError, MissingExtraError
from gnomon.load.files import read_json
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
        }


@contextmanager
def opened(path: Path, part: SweepPart) -> Iterator[tuple[BinaryIO, int]]:
    """The file, open for the answers that are still to come, and how many there are already.

    What a killed program left of a line is cut off. Nobody else writes to it in here.
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
        done, end = _intact(file, path, part)
        if end < path.stat().st_size:
            file.truncate(end)
        yield file, done


def append(file: BinaryIO, line: str) -> None:
    """One line, handed to the system before the next one is worked on."""
    file.write(line.encode() + b"\n")
    file.flush()


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, one at a time."""
    with path.open("rb") as file:
        yield from map(json.loads, file)


def joined(parts: Sequence[Path], path: Path, sweep: Sweep) -> None:
    """The files of all shards of a sweep as one, as if it had been run whole."""
    count = len(parts)
    by_shard: dict[int, Path] = {}
    for file in parts:
        first = _shard(file, sweep, count)
        if first in by_shard:
            raise InputError(f"is shard {first + 1} of {count}, and so is {by_shard[first]}", where=str(file))
        by_shard[first] = file
    whole = SweepPart(sweep=sweep)
    if path.exists() and path.stat().st_size:
        _check_owner(path, whole)
    for first, file in by_shard.items():
        _check_finished(file, SweepPart(sweep=sweep, first=first, every=count))
    files = [by_shard[first].open("rb") for first in range(count)]
    try:
        write_text(_beside(path), compact(whole.owner) + "\n")
        with written(path) as out:
            for index in range(len(sweep)):
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
            raise InputError("is being written by another sweep", where=str(path), hint="Wait for it.") from None


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
    for name, value in ours.items():
        if found.get(name) != value:
            raise InputError(differs.get(name, "holds the answers of another sweep"), where=str(path), hint=ANOTHER)


def _intact(file: BinaryIO, path: Path, part: SweepPart) -> tuple[int, int]:
    """How many lines are complete, and the bytes they take."""
    done = end = 0
    for line in file:
        if not line.endswith(b"\n"):
            break
        if done == len(part) or not line.startswith(part.line_begins(done)) or not _is_answer(line):
            where = f"{path} line {done + 1}"
            raise InputError("is not the answer to this question of the sweep", where=where, hint=ANOTHER)
        done += 1
        end += len(line)
    return done, end


def _is_answer(line: bytes) -> bool:
    """Whether a line is an object with the answer of a question, or with an error that says what was wrong."""
    try:
        row = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return False
    answer, error = row.get("answer"), row.get("error")
    if isinstance(error, dict):
        return answer is None and isinstance(error.get("message"), str)
    return isinstance(answer, dict) and isinstance(answer.get("schema"), str)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _shard(path: Path, sweep: Sweep, count: int) -> int:
    """Which of so many shards a file is, from zero."""
    given = _owner(path).get("shard")
    if not (isinstance(given, list) and len(given) == 2 and given[1] == count and given[0] in range(1, count + 1)):
        shown = "/".join(map(str, given)) if isinstance(given, list) else "unknown"
        raise InputError(f"is shard {shown}, and {count} files are joined", where=str(path))
    _check_owner(path, SweepPart(sweep=sweep, first=given[0] - 1, every=count))
    return int(given[0]) - 1


def _check_finished(path: Path, part: SweepPart) -> None:
    with path.open("rb") as file:
        done, _ = _intact(file, path, part)
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
