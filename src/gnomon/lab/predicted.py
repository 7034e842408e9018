"""Predicted gains of an experiment's rows, by the function in its own file.

Rates of the host (copies, updates) are those that a run measured separately: the host is otherwise unknown. The chip is
predicted from its profile. What would follow from a row's own times is an identity: `predict` is not given them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.errors import InputError, UnknownNameError
from gnomon.lab import experiment
from gnomon.lab.base import (
    SCHEMA,
    Experiment,
    LabRow,
    Predicted,
    Rates,
    RateUnknown,
    beaten,
    predicted_to_dict,
    row_from_dict,
)
from gnomon.load.chips import chip as find_chip
from gnomon.load.files import read_json
from gnomon.spec import Chip


def predictions(
    found: Experiment, rows: Iterable[LabRow], facts: Mapping[str, Any], device: str, date: str = ""
) -> dict[str, Predicted]:
    """Predictions by row of a run; none where the chip is not known."""
    try:
        chip = find_chip(device)
    except UnknownNameError:
        return {}
    told = ((row.what, predicted(found, row, facts, chip)[0]) for row in rows)
    fitted = (device, date) in found.fitted_to
    return {what: replace(one, kind="fit") if fitted else one for what, one in told if one}


def predicted(found: Experiment, row: LabRow, facts: Mapping[str, Any], chip: Chip) -> tuple[Predicted | None, str]:
    """A row's prediction, or the first rate that it lacks."""
    try:
        return found.predict(row, Rates(names=found.rates, measured=facts), chip), ""
    except RateUnknown as missing:
        return None, str(missing)


def preview(slug: str, sizes: Mapping[str, int], chip: Chip, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What an experiment will find on a chip: its rows with their predictions, before it runs."""
    found = experiment(slug)
    rows = []
    for row in found.rows(sizes):
        one, lacks = predicted(found, row, facts, chip)
        rows.append({"what": row.what, "unit": row.unit} | predicted_to_dict(one) | {"lacks": lacks or None})
    claim = found.claim
    return {"slug": slug, "title": found.title, "sizes": dict(sizes), "rows": rows, "rates": list(found.rates)} | {
        "comparable": {"claim": claim.what, "comparable": claim.comparable, "why": claim.why}
    }


def rates_of(paths: Iterable[Path], chip: Chip) -> dict[str, Any]:
    """The facts of runs on a machine with this chip; the last run's counts."""
    facts: dict[str, Any] = {}
    for path in paths:
        found = read_json(path)
        if found.get("schema") != SCHEMA:
            hint = "Give a file that `gnomon lab run --out` wrote."
            raise InputError(f"'{path}' is not an outcome of `gnomon lab`", where="--rates", hint=hint)
        try:
            there: str | None = find_chip(found["device"]).name
        except UnknownNameError:
            there = None
        if there != chip.name:
            hint = f"Give a run on {chip.name}, or the chip with --on."
            raise InputError(f"'{path}' was run on {found['device']}", where="--rates", hint=hint)
        facts |= found["facts"]
    return facts


def updated_outcome(outcome: dict[str, Any]) -> dict[str, Any]:
    """A stored outcome with current predictions, and with its experiment's current view of the paper's claim. What was
    measured, and what was predicted when it ran, stays."""
    rows, found = tuple(map(row_from_dict, outcome["compared"])), experiment(outcome["slug"])
    timed = [row.row for row in rows] if any(row.gain for row in rows) else []
    told = predictions(found, timed, outcome["facts"], outcome["device"], outcome["date"])
    notes = list(dict.fromkeys([*outcome["notes"], *beaten(rows)]))
    return outcome | {
        "compared": [row | predicted_to_dict(told.get(row["what"])) for row in outcome["compared"]],
        "comparable": {"claim": found.claim.what, "comparable": found.claim.comparable, "why": found.claim.why},
        "notes": notes,
    }


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(json.dumps(updated_outcome(json.loads(path.read_text())), indent=1) + "\n")
