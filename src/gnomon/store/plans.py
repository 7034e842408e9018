"""A plan by whatever names it: a YAML file, a run of the history, or `last`, the newest answer of all commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, InputError
from gnomon.load.answers import kind_of
from gnomon.load.files import as_path, is_file, read_json
from gnomon.load.plan import plan_from_dict, plan_from_file, read_plan
from gnomon.spec import Plan
from gnomon.spec.plan_dict import SCHEMA
from gnomon.store.answered import plan_of
from gnomon.store.runs import MOST_FILE, Entry, entries, entry

MAKERS = "`gnomon plan`, `gnomon simulate`, `gnomon predict` and `gnomon fit` make one."


def resolve_plan(ref: str | Path) -> Plan:
    """The plan of a file, of a run's id or its beginning, or of `last`, the newest run.

    A run that chose a plan gives that one; a prediction, a fit or a simulated load gives the deployment it is about.
    """
    path = as_path(ref)
    if ref != "last" and path.suffix == ".json":
        return _answered(path)
    if ref != "last" and (isinstance(ref, Path) or path.suffix in (".yaml", ".yml") or is_file(path)):
        return read_plan(path)
    found = entry(str(ref))
    plan = _plan_in(found)
    if plan is None:
        named = f"the last answer, {found.id}," if ref == "last" else f"the run '{found.id}'"
        raise InputError(f"{named} is of `gnomon {_command(found.kind)}` and holds no plan", hint=_newest())
    return plan


def _command(kind: str) -> str:
    return kind.replace(".", " ") or "an unknown command"


def _newest() -> str:
    """What has a plan, as a hint."""
    for run in entries():
        try:
            if _plan_in(run) is not None:
                return f"The newest run that holds one is {run.id}."
        except GnomonError:
            continue
    return MAKERS


def _answered(path: Path) -> Plan:
    """The plan of an answer kept with `--json`."""
    answer = read_json(path, limit=MOST_FILE)
    plan = _chosen(answer, str(path), by_hand=True) or plan_of(kind_of(answer), answer, str(path))
    if plan is None:
        raise InputError("holds no plan", where=str(path), hint="`gnomon plan … --json` makes one.")
    return plan


def _plan_in(run: Entry) -> Plan | None:
    return _chosen(run.payload, run.where) or plan_of(run.kind, run.payload, run.where)


def _chosen(payload: Mapping[str, Any], where: str, by_hand: bool = False) -> Plan | None:
    """The plan a payload is, or holds as `plan`, or chose as `best`. Numbers of one that is perhaps written by hand
    need their unit."""
    spots: list[Any] = [payload, payload.get("plan"), payload.get("best")]
    spots += [spot.get("plan") for spot in spots[2:] if isinstance(spot, Mapping)]
    for spot in spots:
        if isinstance(spot, Mapping) and spot.get("schema") == SCHEMA:
            return plan_from_file(spot, where) if by_hand else plan_from_dict(spot, where)
    return None
