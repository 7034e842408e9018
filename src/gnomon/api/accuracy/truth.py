"""Where published measurements lie, and which they are. They do not come with Gnomon."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from pathlib import Path

from gnomon.calibrate import truth as operators
from gnomon.errors import CalibrationError, InputError
from gnomon.load.files import read_text

SERVING, TRAINING = "serving_e2e.csv.gz", "training.csv"

Row = dict[str, str]


def folder() -> Path | None:
    """The folder of operator tables, where serving and training lie beside them."""
    found = operators.folder()
    return found if found and all((found / name).is_file() for name in (SERVING, TRAINING)) else None


def required() -> Path:
    """The folder; without it nothing can be computed again."""
    found = folder()
    if found is None:
        named = os.environ.get("GNOMON_TRUTH")
        raise InputError(
            f"the published measurements are not in {named}" if named else "the published measurements are not at hand",
            where="GNOMON_TRUTH" if named else "--fresh",
            hint=f"Set GNOMON_TRUTH to the folder that holds {SERVING}; without --fresh stored results are shown.",
        )
    return found


def files(folder: Path) -> list[Path]:
    """Every table that is compared with."""
    return [operators.path(folder, name) for name in operators.TABLES] + [folder / SERVING, folder / TRAINING]


def rows(path: Path, needed: tuple[str, ...]) -> list[Row]:
    """The rows of a table, packed or not, which must have these columns."""
    try:
        found = list(csv.DictReader(io.StringIO(read_text(path, operators.MAX_BYTES), newline="")))
    except csv.Error as problem:
        raise CalibrationError(f"is no table: {problem}", where=str(path)) from None
    missing = [name for name in needed if not found or name not in found[0]]
    if missing:
        raise CalibrationError(f"has no column {missing[0]}", where=str(path))
    return found


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
