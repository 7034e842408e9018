"""What `gnomon calibrate --engine` measured on the user's own host, where predictions find it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.errors import CalibrationError
from gnomon.load.files import read_yaml
from gnomon.load.schemas import check_schema
from gnomon.paths import home

SCHEMA = "gnomon.overheads/1"


def own_path(engine: str) -> Path:
    return home() / "overheads" / f"{engine}.yaml"


def own_overheads(engine: str) -> Mapping[str, Any] | None:
    """The user's own figures of an engine by kind of model, if there are any."""
    return _read(own_path(engine))


@cache
def _read(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    found: dict[str, Any] = read_yaml(path)
    check_schema(found.get("schema"), SCHEMA, str(path))
    for name, kind in (("version", str), ("date", str), ("figures", dict)):
        if not isinstance(found.get(name), kind):
            raise CalibrationError(f"has no {name}", where=str(path), hint="Remove it, or calibrate again.")
    return found


def forget_own() -> None:
    """Read them again: a file has changed."""
    _read.cache_clear()
