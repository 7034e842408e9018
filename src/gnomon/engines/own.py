"""What `gnomon calibrate --engine` measured on the user's host, as engines take it; `load/overheads.py` reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.errors import CalibrationError

AGAIN = "Remove it, or calibrate again."
ROUNDED = 1e-3
"""Figures that end at the edge of their range were rounded."""
Ranges = Mapping[str, tuple[float, float]]
MeasuredHosts = Mapping[str, Mapping[str, Any]]
"""By engine: what its file says, and under `file` which that is."""
SPEED = "host"
"""Among them: how fast the user's host is beside the one an engine was measured on, under `speed`, and whose it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHost:
    """One kind of model under one version of an engine, in microseconds."""

    version: str
    date: str
    figures: Mapping[str, float]


def figures_of(
    hosts: MeasuredHosts, engine: str, kind: str, ranges: Ranges, optional: Collection[str] = ()
) -> MeasuredHost | None:
    """The user's own figures of a kind of model, each within its range; none where it was not measured."""
    found = hosts.get(engine)
    if found is None or kind not in found["figures"]:
        return None
    figures = check_figures(found["figures"][kind], kind, ranges, found["file"], optional)
    return MeasuredHost(version=found["version"], date=found["date"], figures=figures)


def check_figures(
    given: Any, kind: str, ranges: Ranges, where: str, optional: Collection[str] = ()
) -> dict[str, float]:
    """Figures of one kind of model: all that there should be, no others, each within its range."""
    if not isinstance(given, Mapping):
        raise CalibrationError(f"is incomplete ({kind} holds no figures)", where=where, hint=AGAIN)
    missing = next((name for name in ranges if name not in given and name not in optional), None)
    unknown = next((name for name in given if name not in ranges), None)
    if missing is not None or unknown is not None:
        what = f"no {missing}" if missing is not None else f"'{unknown}', which is not a figure of this engine"
        raise CalibrationError(f"is not valid ({kind} has {what})", where=where, hint=AGAIN)
    for name, value in given.items():
        low, high = ranges[name]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not low * (1 - ROUNDED) <= value <= high * (1 + ROUNDED):
            raise CalibrationError(f"{kind} has {name} {value}, not {low:g} to {high:g}", where=where, hint=AGAIN)
    return {name: float(value) for name, value in given.items()}
