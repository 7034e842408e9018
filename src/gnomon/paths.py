"""Where Gnomon keeps what it writes for itself, and how it writes a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def home() -> Path:
    """The user's folder; `GNOMON_HOME` moves it."""
    chosen = os.environ.get("GNOMON_HOME")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("gnomon"))


def write_text(path: Path, text: str) -> None:
    """All of the file or nothing, whoever else writes."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
