"""Where Gnomon keeps what it writes for itself, and how it writes a file."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from gnomon.errors import InputError


def home() -> Path:
    """The user's folder; `GNOMON_HOME` moves it."""
    chosen = os.environ.get("GNOMON_HOME")
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise InputError(f"'{chosen}' names no user's folder", where="GNOMON_HOME") from None
    import platformdirs

    return Path(platformdirs.user_data_dir("gnomon"))


def write_text(path: Path, text: str) -> None:
    """All of the file or nothing, whoever else writes. A link's target is replaced; a device is written to."""
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as problem:
        raise InputError(f"cannot be written: {problem}", where=str(path)) from None
    partial = target.with_name(f".{target.name[:80]}.{os.getpid()}.{uuid.uuid4().hex[:8]}.partial")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as problem:
        raise InputError(f"cannot be written: {problem.strerror or problem}", where=str(path)) from None
