"""Results of `gnomon lab` that come with Gnomon: papers whose technique was run on a GPU against the plain version."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.load.files import read_json

LAB = Path(__file__).parent / "lab"
SCHEMA = "gnomon.lab/1"
NEEDED = ("slug", "ok", "device", "date", "compared")


def executed() -> frozenset[str]:
    """The papers that have one, by the names of their files."""
    return frozenset(file.stem for file in LAB.glob("*.json"))


@cache
def outcome(slug: str) -> dict[str, Any]:
    """The result of a paper that has one. A run whose checks failed, or that no GPU ran, is no result."""
    file = LAB / f"{slug}.json"
    where = f"papers/lab/{file.name}"
    found = read_json(file)
    if found.get("schema") != SCHEMA:
        raise InputError(f"schema '{found.get('schema')}' is not {SCHEMA}", where=where)
    for name in NEEDED:
        if name not in found:
            raise InputError(f"lacks the field '{name}'", where=where)
    if found["slug"] != slug:
        raise InputError(f"slug '{found['slug']}' is not that of its file, '{slug}'", where=where)
    if found["ok"] is not True:
        raise InputError("its checks failed", where=where, hint="Only a run that is right may ship.")
    for name in ("device", "date"):
        if not (isinstance(found[name], str) and found[name].strip()):
            raise InputError(f"'{name}' is {found[name]!r}, not a text", where=where)
    if found["device"].strip().casefold() == "cpu":
        raise InputError("was run on a CPU", where=where, hint="Run it on a GPU: `gnomon lab run`.")
    _check_compared(found["compared"], where)
    return found


def _check_compared(rows: Any, where: str) -> None:
    """What was compared, and how many times as quick each was; null where it was not timed."""
    if not (isinstance(rows, list) and rows):
        raise InputError("'compared' is no list of what was compared", where=where)
    for position, row in enumerate(rows, 1):
        spot = f"{where}, compared {position}"
        if not (isinstance(row, dict) and isinstance(row.get("what"), str) and "gain" in row):
            raise InputError("does not say 'what' was compared and its 'gain'", where=spot)
        gain = row["gain"]
        known = isinstance(gain, (int, float)) and not isinstance(gain, bool) and math.isfinite(gain) and gain > 0
        if gain is not None and not known:
            raise InputError(f"'gain' is {gain!r}, not a number above zero", where=spot)
