"""Shipped results of `gnomon lab` (`lab.json` of a paper's folder): its technique against the baseline on a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from gnomon.errors import InputError
from gnomon.lab.base import DEFERRED, PREDICTIONS, SCHEMA
from gnomon.load.files import read_json
from gnomon.papers.index import PaperFolder, folder_of

FILE = "lab.json"
NEEDED = ("slug", "ok", "device", "date", "compared", "comparable")


def executed() -> frozenset[str]:
    """Slugs of papers that have a lab result."""
    from gnomon.papers.entries import papers

    return frozenset(entry.slug for entry in papers() if entry.status == "executed")


@cache
def outcome(slug: str) -> dict[str, Any]:
    """The lab result of a paper that ships."""
    return result_of(folder_of(slug))


def result_of(folder: PaperFolder) -> dict[str, Any]:
    """The lab result in a paper's folder. A run whose checks failed, or on a CPU, is rejected."""
    where, slug = folder.place(FILE), folder.slug
    found = read_json(folder.file(FILE))
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
        _check_burst(row, spot)
        _check_prediction(row, spot)


def _check_gain(gain: Any, name: str, spot: str) -> None:
    known = isinstance(gain, (int, float)) and not isinstance(gain, bool) and math.isfinite(gain) and gain > 0
    if gain is not None and not known:
        raise InputError(f"'{name}' is {gain!r}, not a number above zero", where=spot)


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
