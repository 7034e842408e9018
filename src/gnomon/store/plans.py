"""A plan by whatever names it: a YAML file, a run of the history, or `last`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.load.files import as_path, is_file, read_json
from gnomon.load.plan import SCHEMA, plan_from_dict, read_plan
from gnomon.spec import Plan
from gnomon.store.runs import Entry, entries, entry

MAKERS = "`gnomon plan serve` and `gnomon plan train` make one."


def resolve_plan(ref: str | Path) -> Plan:
    """The plan of a file, of a run's id or its beginning, or of the last run that holds one."""
    if ref == "last":
        return _last()
    path = as_path(ref)
    if path.suffix == ".json":
        return _answered(path)
    if isinstance(ref, Path) or path.suffix in (".yaml", ".yml") or is_file(path):
        return read_plan(path)
    found = entry(ref)
    plan = _plan_in(found)
    if plan is None:
        raise InputError(f"the run '{found.id}' holds no plan", hint=MAKERS)
    return plan


def _answered(path: Path) -> Plan:
    """The plan of an answer kept with `--json`."""
    answer = read_json(path, limit=64 * 1024**2)
    plan = _plan_in(Entry(id=str(path), kind="file", saved_s=0.0, payload=answer))
    if plan is None:
        raise InputError("holds no plan", where=str(path), hint="`gnomon plan … --json` makes one.")
    return plan


def _last() -> Plan:
    plan = next(filter(None, map(_plan_in, entries())), None)
    if plan is None:
        raise InputError("there is no plan in the history yet", hint=MAKERS)
    return plan


def _plan_in(run: Entry) -> Plan | None:
    """The plan a payload is, or holds as `plan`, or chose as `best`."""
    spots: list[Any] = [run.payload, run.payload.get("plan"), run.payload.get("best")]
    spots += [spot.get("plan") for spot in spots[2:] if isinstance(spot, Mapping)]
    for spot in spots:
        if isinstance(spot, Mapping) and spot.get("schema") == SCHEMA:
            return plan_from_dict(spot, f"run {run.id}")
    return None
