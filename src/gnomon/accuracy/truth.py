"""Where published measurements lie, and which they are. They do not come with Gnomon."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from gnomon.accuracy import deployment_rows, run_rows
from gnomon.calibrate import truth as operators
from gnomon.errors import InputError

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
    return [dict(row) for _, row in operators.numbered(path, needed)]


def check(folder: Path) -> None:
    """Refuse tables that cannot be read, before hours go into the others."""
    rows(folder / SERVING, deployment_rows.NEEDED)
    rows(folder / TRAINING, run_rows.NEEDED)
    for name in operators.TABLES:
        next(operators.numbered(operators.path(folder, name), operators.NEEDED.get(name, ("time_us",))), None)


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
