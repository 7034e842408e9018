"""What `gnomon calibrate --engine` measured on the user's own host, where predictions find it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.errors import CalibrationError
from gnomon.load.files import read_yaml
from gnomon.load.schemas import check_schema
from gnomon.paths import home

SCHEMA = "gnomon.overheads/1"
AGAIN = "Remove it, or calibrate again."
ROUNDED = 1e-3
"""Figures that end at the edge of their range were rounded."""
Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """One kind of model under one version of an engine, in microseconds."""

    version: str
    date: str
    figures: Mapping[str, float]


def own_path(engine: str) -> Path:
    return home() / "overheads" / f"{engine}.yaml"


def own_overheads(engine: str) -> Mapping[str, Any] | None:
    """The user's own file of an engine, if there is one."""
    return _read(own_path(engine), engine)


def own_figures(engine: str, kind: str, ranges: Ranges, optional: Collection[str] = ()) -> Own | None:
    """The user's own figures of a kind of model, each within its range; none where it was not measured."""
    return figures_of(own_overheads(engine), engine, kind, ranges, optional)


def figures_of(
    found: Mapping[str, Any] | None, engine: str, kind: str, ranges: Ranges, optional: Collection[str] = ()
) -> Own | None:
    """The same of a file that was read."""
    if found is None or kind not in found["figures"]:
        return None
    figures = check_figures(found["figures"][kind], kind, ranges, str(own_path(engine)), optional)
    return Own(version=found["version"], date=found["date"], figures=figures)


def check_figures(
    given: Any, kind: str, ranges: Ranges, where: str, optional: Collection[str] = ()
) -> dict[str, float]:
    """Figures of one kind of model: all that there should be, no others, each within its range."""
    if not isinstance(given, Mapping):
        raise CalibrationError(f"is not whole ({kind} holds no figures)", where=where, hint=AGAIN)
    missing = next((name for name in ranges if name not in given and name not in optional), None)
    unknown = next((name for name in given if name not in ranges), None)
    if missing is not None or unknown is not None:
        what = f"no {missing}" if missing is not None else f"'{unknown}', which is no figure of this engine"
        raise CalibrationError(f"is not whole ({kind} has {what})", where=where, hint=AGAIN)
    for name, value in given.items():
        low, high = ranges[name]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not low * (1 - ROUNDED) <= value <= high * (1 + ROUNDED):
            raise CalibrationError(f"{kind} has {name} {value}, not {low:g} to {high:g}", where=where, hint=AGAIN)
    return {name: float(value) for name, value in given.items()}


@cache
def _read(path: Path, engine: str) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    found: dict[str, Any] = read_yaml(path)
    check_schema(found.get("schema"), SCHEMA, str(path))
    if found.get("engine") != engine:
        raise CalibrationError(f"is of engine '{found.get('engine')}', not {engine}", where=str(path), hint=AGAIN)
    for name, kind in (("version", str), ("date", str), ("figures", dict)):
        if not isinstance(found.get(name), kind):
            raise CalibrationError(f"has no {name}", where=str(path), hint=AGAIN)
    return found


def forget_own() -> None:
    """Read them again: a file has changed."""
    _read.cache_clear()
