"""Where published measurements lie. They do not come with Gnomon: `GNOMON_TRUTH` names their folder, or it stands
in ../shared/truth."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from pathlib import Path

from gnomon.errors import CalibrationError, InputError
from gnomon.load.files import read_text

SERVING, TRAINING = "serving_e2e.csv.gz", "training.csv"
MAX_BYTES = 256 * 1024**2

Row = dict[str, str]


def folder() -> Path | None:
    """The folder, where there is one."""
    near = Path(__file__).parents[5] / "shared" / "truth"
    named = os.environ.get("GNOMON_TRUTH")
    folders = [Path(named)] if named else [Path("../shared/truth"), near]
    return next((path for path in folders if (path / SERVING).is_file() and (path / TRAINING).is_file()), None)


def required() -> Path:
    """The folder; without it nothing can be computed again."""
    found = folder()
    if found is None:
        named = os.environ.get("GNOMON_TRUTH")
        raise InputError(
            f"the published measurements are not in {named}" if named else "the published measurements are not at hand",
            where="GNOMON_TRUTH" if named else "--fresh",
            hint=f"Set GNOMON_TRUTH to the folder of {SERVING} and {TRAINING}; without --fresh stored results are shown.",
        )
    return found


def rows(path: Path, needed: tuple[str, ...]) -> list[Row]:
    """The rows of a table, packed or not, which must have these columns."""
    try:
        found = list(csv.DictReader(io.StringIO(read_text(path, MAX_BYTES), newline="")))
    except csv.Error as problem:
        raise CalibrationError(f"is no table: {problem}", where=str(path)) from None
    missing = [name for name in needed if not found or name not in found[0]]
    if missing:
        raise CalibrationError(f"has no column {missing[0]}", where=str(path))
    return found


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
