"""Where Gnomon keeps what it writes for itself, and how it writes a file."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from gnomon.errors import InputError

STALE_S = 3600.0
"""A partial file that nobody has written to for so long was left by a program that was killed."""
_PARTIAL = re.compile(r"\.(.*)\.\d+\.[0-9a-f]{8}\.partial", re.DOTALL)


def home() -> Path:
    """The user's folder; `GNOMON_HOME` moves it."""
    chosen = os.environ.get("GNOMON_HOME")
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise InputError(f"'{chosen}' is not the folder of a known user", where="GNOMON_HOME") from None
    import platformdirs

    return Path(platformdirs.user_data_dir("gnomon"))


def special(path: Path) -> bool:
    """Whether something is there that is no plain file: a device or a pipe, which is written to as it is."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """The file opened for writing; it takes its place, or its link's target's, when all went well."""
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as problem:
        raise InputError(f"cannot be written: {problem}", where=str(path)) from None
    partial = target.with_name(f".{target.name[:80]}.{os.getpid()}.{uuid.uuid4().hex[:8]}.partial")
    place = target if special(target) else partial
    try:
        with place.open("w", encoding="utf-8", newline="") as file:
            yield file
        if place is partial:
            partial.replace(target)
            clear_partials(target.parent, target.name[:80])
    except OSError as problem:
        raise InputError(f"cannot be written: {problem.strerror or problem}", where=str(path)) from None
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """All of the file or nothing, whoever else writes."""
    with written(path) as file:
        file.write(text)


def unwritten(path: Path, text: str) -> InputError | None:
    """Write a file and its folder; the error is returned, for a caller that has an answer to print first."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except InputError as problem:
        return problem
    except OSError as problem:
        return InputError(f"cannot be made: {problem.strerror or problem}", where=str(path.parent))
    return None


def write_bytes(path: Path, data: bytes) -> None:
    """All of the file or nothing, whoever else writes."""
    with written(path) as file:
        file.buffer.write(data)


def clear_partials(folder: Path, name: str | None = None) -> None:
    """Remove what killed programs left of files in a folder, of all of them or of those of one name."""
    with suppress(OSError):
        for file in folder.iterdir():
            found = _PARTIAL.fullmatch(file.name)
            if found and name in (None, found[1]) and time.time() - file.stat().st_mtime > STALE_S:
                file.unlink(missing_ok=True)
