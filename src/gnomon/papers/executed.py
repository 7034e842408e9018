"""Results of `gnomon lab` that come with Gnomon: papers whose technique was run on a GPU against the plain version."""

from __future__ import annotations

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
    if found["device"] == "cpu":
        raise InputError("was run on a CPU", where=where, hint="Run it on a GPU: `gnomon lab run`.")
    return found
