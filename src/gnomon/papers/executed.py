"""Results of `gnomon lab` that come with Gnomon (`lab.json` of a paper's folder): its technique against the plain
version, on a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from gnomon.errors import InputError
from gnomon.lab.base import DEFERRED, PREDICTIONS, SCHEMA
from gnomon.load.files import read_json
from gnomon.papers.entries import papers
from gnomon.papers.index import file_of, place

FILE = "lab.json"
NEEDED = ("slug", "ok", "device", "date", "compared", "comparable")


def executed() -> frozenset[str]:
    """The papers that have one."""
    return frozenset(entry.slug for entry in papers() if entry.status == "executed")


@cache
def outcome(slug: str) -> dict[str, Any]:
    """The result of a paper that has one. A run whose checks failed, or that no GPU ran, is no result."""
    where = place(slug, FILE)
    found = read_json(file_of(slug, FILE))
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
    """What was compared, and how many times as quick each was; null where it was not timed."""
    if not (isinstance(rows, list) and rows):
        raise InputError("'compared' is no list of what was compared", where=where)
    for position, row in enumerate(rows, 1):
        spot = f"{where}, compared {position}"
        if not (isinstance(row, dict) and isinstance(row.get("what"), str) and "gain" in row):
            raise InputError("does not say 'what' was compared and its 'gain'", where=spot)
        for name in ("gain", "burst_gain", "predicted_gain"):
            _check_gain(row.get(name), name, spot)
        _check_burst(row, spot)
        _check_prediction(row, spot)


def _check_gain(gain: Any, name: str, spot: str) -> None:
    known = isinstance(gain, (int, float)) and not isinstance(gain, bool) and math.isfinite(gain) and gain > 0
    if gain is not None and not known:
        raise InputError(f"'{name}' is {gain!r}, not a number above zero", where=spot)


def _check_burst(row: Mapping[str, Any], spot: str) -> None:
    """A gain that leaves work to be done later is that of a burst; the headline is sustained, or not known."""
    left = row.get("deferred_s")
    if isinstance(left, bool) or not isinstance(left, (int, float)) or not (math.isfinite(left) and left >= 0):
        raise InputError("does not say how many seconds of work were left ('deferred_s')", where=spot)
    seconds = {name: (row.get(name) or {}).get("seconds") for name in ("plain", "technique", "sustained")}
    if row["gain"] is None or not seconds["technique"]:
        return
    if left > DEFERRED * seconds["technique"] and not seconds["sustained"]:
        hint = "Give the sustained seconds, or no gain."
        raise InputError("'gain' is that of a burst", where=spot, hint=hint)
    expected = seconds["plain"] / (seconds["sustained"] or seconds["technique"])
    if not math.isclose(row["gain"], expected, rel_tol=1e-6):
        raise InputError(f"'gain' is {row['gain']:.4g}, and {expected:.4g} by its seconds", where=spot)


def _check_prediction(row: Mapping[str, Any], spot: str) -> None:
    """Who predicts is named, and only a prediction of what ran counts as one."""
    told = row.get("prediction")
    if told is None:
        if row.get("predicted_gain") is not None:
            raise InputError("'predicted_gain' does not say by whom ('prediction')", where=spot)
        return
    if not (isinstance(told, dict) and str(told.get("by") or "").strip() and told.get("kind") in PREDICTIONS):
        kinds = ", ".join(PREDICTIONS)
        raise InputError(f"'prediction' does not say 'by' whom and its 'kind' ({kinds})", where=spot)
    if (row.get("predicted_gain") is not None) != (told["kind"] == "prediction"):
        raise InputError("'predicted_gain' is for a prediction of what ran alone", where=spot)


def _check_comparable(found: Any, where: str) -> None:
    """Whether the paper's own claim can be set beside the run, and why not."""
    said = isinstance(found, dict) and isinstance(found.get("comparable"), bool)
    if not said or not all(isinstance(found.get(name), str) and found[name].strip() for name in ("claim", "why")):
        raise InputError("'comparable' does not say which claim, whether and why", where=where)
