"""Measurements that others wrote: told apart by what is in them, refused with the reason where they are none of ours.

- a CSV table of operators, such as `gnomon calibrate` writes: `gnomon.calibrate.fit` reads it;
- Parquet tables of operators, one or a folder of them (`parquet`);
- an engine's steps as `gnomon calibrate --engine` measured them, and results of whole deployments (`results`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnomon.calibrate.readers.results import READERS, Deployed
from gnomon.errors import CalibrationError, InputError
from gnomon.load.files import check_regular, read_json

MOST_BYTES = 64 * 1024**2
CSV, PARQUET, STEPS, DEPLOYED = "csv", "parquet", "steps", "deployed"


def kind_of(path: Path) -> str:
    """Which of these a path leads to. Raises for what is none of them."""
    try:
        if path.is_dir() or path.suffix == ".parquet":
            return PARQUET
        check_regular(path, MOST_BYTES)
    except FileNotFoundError:
        raise InputError("no such file", where=str(path)) from None
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot be read: {getattr(problem, 'strerror', None) or problem}", where=str(path)) from None
    if path.suffix in (".csv", ".gz"):
        return CSV
    if path.suffix != ".json":
        hint = "Give a .csv, .json or .parquet file, or a folder of Parquet tables."
        raise InputError(f"'{path.suffix}' files hold no measurements", where=str(path), hint=hint)
    data = read_json(path, MOST_BYTES)
    if str(data.get("schema", "")).startswith("gnomon."):
        return STEPS
    if any(reader.knows(data) for reader in READERS):
        return DEPLOYED
    found = ", ".join(list(data)[:6]) or "nothing"
    known = ", ".join(reader.what for reader in READERS)
    raise CalibrationError(f"is none of these: {known} (it holds {found})", where=str(path))


def steps(path: Path) -> dict[str, Any]:
    return read_json(path, MOST_BYTES)


def deployed(path: Path) -> Deployed:
    """A whole deployment's result."""
    data = read_json(path, MOST_BYTES)
    reader = next(reader for reader in READERS if reader.knows(data))
    return reader.read(data, str(path))
