"""Where the figures of the user's own host stand that `gnomon calibrate --engine` measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.engines.own import AGAIN
from gnomon.errors import CalibrationError
from gnomon.load.files import is_there, read_yaml
from gnomon.load.schemas import check_schema
from gnomon.paths import home

SCHEMA = "gnomon.overheads/1"


def own_path(engine: str) -> Path:
    return home() / "overheads" / f"{engine}.yaml"


def own_overheads(*engines: str) -> dict[str, Mapping[str, Any]]:
    """The user's own files of these engines, as far as there are any."""
    found = {engine: _read(own_path(engine), engine) for engine in engines}
    return {engine: data for engine, data in found.items() if data is not None}


@cache
def _read(path: Path, engine: str) -> Mapping[str, Any] | None:
    if not is_there(path):
        return None
    found: dict[str, Any] = read_yaml(path)
    check_schema(found.get("schema"), SCHEMA, str(path))
    if found.get("engine") != engine:
        raise CalibrationError(f"is of engine '{found.get('engine')}', not {engine}", where=str(path), hint=AGAIN)
    for name, kind in (("version", str), ("date", str), ("figures", dict)):
        if not isinstance(found.get(name), kind):
            raise CalibrationError(f"has no {name}", where=str(path), hint=AGAIN)
    return found | {"file": str(path)}


def forget_own() -> None:
    """Read them again: a file has changed."""
    _read.cache_clear()
