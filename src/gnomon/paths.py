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
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("gnomon"))


def write_text(path: Path, text: str) -> None:
    """All of the file or nothing, whoever else writes."""
    partial = path.with_name(f".{path.name[:80]}.{os.getpid()}.{uuid.uuid4().hex[:8]}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as problem:
        raise InputError(f"cannot be written: {problem.strerror or problem}", where=str(path)) from None
    finally:
        partial.unlink(missing_ok=True)
