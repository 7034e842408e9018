"""Shipped results of `gnomon lab`: its technique against the baseline on a GPU.

The first is `lab.json` of a paper's folder; each later run is kept beside it as `lab-DEVICE-DATE.json`, and the newest
is what pages show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from gnomon.errors import InputError
from gnomon.lab.base import DEFERRED, PREDICTIONS, SCHEMA, UNITS
from gnomon.load.files import read_json
from gnomon.papers.index import PaperFolder, folder_of

FILE = "lab.json"
PATTERN = "lab*.json"
NEEDED = ("slug", "ok", "device", "date", "compared", "comparable")


def executed() -> frozenset[str]:
    """Slugs of papers that have a lab result."""
    from gnomon.papers.entries import papers

    return frozenset(entry.slug for entry in papers() if entry.status == "executed")


@cache
def outcome(slug: str) -> dict[str, Any]:
    """The newest lab result of a paper that ships."""
    return result_of(folder_of(slug))


def results_of(folder: PaperFolder) -> list[dict[str, Any]]:
    """All lab results in a paper's folder, the oldest first; those of one day by name."""
    return sorted(
        (_checked(folder, path.name) for path in folder.matching(PATTERN)), key=lambda found: str(found["date"])
    )


def result_of(folder: PaperFolder) -> dict[str, Any]:
    """The newest lab result in a paper's folder."""
    found = results_of(folder)
    if not found:
        raise InputError("no such file", where=folder.place(FILE))
    return found[-1]


def _checked(folder: PaperFolder, name: str) -> dict[str, Any]:
    """A lab result. A run whose checks failed, or on a CPU, is rejected."""
    where, slug = folder.place(name), folder.slug
    found = read_json(folder.file(name))
    if found.get("schema") != SCHEMA:
        raise InputError(f"schema '{found.get('schema')}' is not {SCHEMA}", where=where)
    for name in NEEDED:
        if name not in found:
            raise InputError(f"lacks the field '{name}'", where=where)
    if found["slug"] != slug:
        raise InputError(f"slug '{found['slug']}' is not that of its folder, '{slug}'", where=where)
    if found["ok"] is not True:
        raise InputError("its checks failed", where=where, hint="Only a run that is right may ship.")
    for name in ("device", "date"):
        if not (isinstance(found[name], str) and found[name].strip()):
            raise InputError(f"'{name}' is {found[name]!r}, not a text", where=where)
    if found["device"].strip().casefold() == "cpu":
        raise InputError("was run on a CPU", where=where, hint="Run it on a GPU: `gnomon lab run`.")
    _check_compared(found["compared"], where)
    _check_comparable(found["comparable"], where)
    return found


def _check_compared(rows: Any, where: str) -> None:
    """Check the rows: what was compared, and its gain, null where it was not timed."""
    if not (isinstance(rows, list) and rows):
        raise InputError("'compared' is not a non-empty list", where=where)
    for position, row in enumerate(rows, 1):
        spot = f"{where}, compared {position}"
        if not (isinstance(row, dict) and isinstance(row.get("what"), str) and "gain" in row):
            raise InputError("lacks 'what' (text) or 'gain'", where=spot)
        for name in ("gain", "burst_gain", "predicted_gain"):
            _check_gain(row.get(name), name, spot)
        if row.get("unit", "seconds") == "seconds":
            _check_burst(row, spot)
        else:
            _check_amounts(row, spot)
        _check_prediction(row, spot)


def _check_gain(gain: Any, name: str, spot: str) -> None:
    known = isinstance(gain, (int, float)) and not isinstance(gain, bool) and math.isfinite(gain) and gain > 0
    if gain is not None and not known:
        raise InputError(f"'{name}' is {gain!r}, not a number above zero", where=spot)


def _check_amounts(row: Mapping[str, Any], spot: str) -> None:
    """Check a gain of bytes or error: its unit is known and it is the ratio of its amounts."""
    amounts = row.get("amounts") or {}
    if row["unit"] not in UNITS:
        raise InputError(f"'unit' is {row['unit']!r}", where=spot, hint=f"Use {', '.join(UNITS)}.")
    for name in ("plain", "technique"):
        _check_gain(amounts.get(name), f"amounts {name}", spot)
    if row["gain"] is None:
        return
    if not all(amounts.get(name) for name in ("plain", "technique")):
        raise InputError(f"'gain' is of {row['unit']}, and 'amounts' lacks plain or technique", where=spot)
    expected = amounts["plain"] / amounts["technique"]
    if not math.isclose(row["gain"], expected, rel_tol=1e-6):
        raise InputError(f"'gain' is {row['gain']:.4g}, but its amounts give {expected:.4g}", where=spot)


def _check_burst(row: Mapping[str, Any], spot: str) -> None:
    """Check that a gain which defers work is sustained: one that excludes that work is a burst."""
    left = row.get("deferred_s")
    if isinstance(left, bool) or not isinstance(left, (int, float)) or not (math.isfinite(left) and left >= 0):
        raise InputError("'deferred_s', the seconds of work left, is not a number of 0 or more", where=spot)
    seconds = {name: (row.get(name) or {}).get("seconds") for name in ("plain", "technique", "sustained")}
    if row["gain"] is None or not seconds["technique"]:
        return
    if left > DEFERRED * seconds["technique"] and not seconds["sustained"]:
        hint = "Give the sustained seconds, or no gain."
        raise InputError("'gain' is that of a burst, which defers work", where=spot, hint=hint)
    expected = seconds["plain"] / (seconds["sustained"] or seconds["technique"])
    if not math.isclose(row["gain"], expected, rel_tol=1e-6):
        raise InputError(f"'gain' is {row['gain']:.4g}, but its seconds give {expected:.4g}", where=spot)


def _check_prediction(row: Mapping[str, Any], spot: str) -> None:
    """Check that a prediction names its model, and that only a prediction of what ran has a `predicted_gain`."""
    prediction = row.get("prediction")
    if prediction is None:
        if row.get("predicted_gain") is not None:
            raise InputError("'predicted_gain' needs a 'prediction'", where=spot)
        return
    if not (
        isinstance(prediction, dict)
        and str(prediction.get("by") or "").strip()
        and prediction.get("kind") in PREDICTIONS
    ):
        kinds = ", ".join(PREDICTIONS)
        raise InputError(f"'prediction' lacks 'by' or a 'kind' ({kinds})", where=spot)
    if (row.get("predicted_gain") is not None) != (prediction["kind"] == "prediction"):
        raise InputError("'predicted_gain' is only for the kind 'prediction'", where=spot)


def _check_comparable(found: Any, where: str) -> None:
    """Check that it states the paper's claim, whether it is comparable with the run, and why."""
    stated = isinstance(found, dict) and isinstance(found.get("comparable"), bool)
    if not stated or not all(isinstance(found.get(name), str) and found[name].strip() for name in ("claim", "why")):
        raise InputError("'comparable' lacks 'claim', 'comparable' or 'why'", where=where)
