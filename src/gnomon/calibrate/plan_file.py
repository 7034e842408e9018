"""The plan next to a table of measurements, line by line: what it was begun with, which shapes each round chose, what
could not run, and what was measured in spite of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.errors import CalibrationError
from gnomon.load.files import read_text
from gnomon.load.schemas import check_schema

SCHEMA = "gnomon.calibration/1"
MAX_BYTES = 64 * 1024**2
LONGEST_S = 1e7
"""A third of a year: nothing is measured for longer."""


def plan_path(table: Path) -> Path:
    """The plan's file, next to its table."""
    return table.with_name(f"{table.stem}.plan.jsonl")


def plan_head(table: Path) -> dict[str, Any]:
    """What the plan next to a table says of it, and what it was measured in spite of; nothing where there is none."""
    path = plan_path(table)
    if not path.is_file():
        return {}
    text = read_text(path, MAX_BYTES)
    lines = plan_lines(text[: text.rfind("\n") + 1], path)
    if not lines:
        raise CalibrationError("is not a measurement plan", where=str(path))
    forced = [problem for line in lines for problem in line.get("forced", ())]
    return lines[0] | {"forced": forced}


def plan_lines(text: str, path: Path) -> list[dict[str, Any]]:
    """The lines of a plan, each checked: the head, whose schema must be ours, and what follows it."""
    found = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        where = f"{path} line {number}"
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            raise CalibrationError("is not a measurement plan (not JSON)", where=where) from None
        if not isinstance(data, dict):
            raise CalibrationError("is not a measurement plan (no JSON object)", where=where)
        if number == 1:
            check_schema(data.get("schema"), SCHEMA, where)
        wrong = _wrong_in_head(data) if number == 1 else _wrong(data)
        if wrong:
            raise CalibrationError(f"is not a measurement plan ({wrong})", where=where)
        found.append(data)
    return found


def _wrong_in_head(line: Mapping[str, Any]) -> str:
    for name in ("chip", "date"):
        if not isinstance(line.get(name), str) or not line[name]:
            return f"no {name}"
    versions = line.get("versions")
    if not isinstance(versions, dict) or not all(isinstance(version, str) for version in versions.values()):
        return "versions are not texts by name"
    return "" if _texts(line.get("notes", [])) else "notes are not a list of texts"


def _wrong(line: Mapping[str, Any]) -> str:
    """What is wrong with a line after the head; nothing where it is whole."""
    if "skipped" in line:
        return "" if _texts([line["skipped"], line.get("reason")]) else "skipped and reason are not texts"
    if "forced" in line:
        return "" if _texts(line["forced"]) else "forced is not a list of texts"
    turn, took_s, tasks = line.get("round"), line.get("took_s"), line.get("tasks")
    if not isinstance(line.get("design"), str):
        return "no design, skipped or forced"
    if not isinstance(turn, int) or isinstance(turn, bool) or turn < 0:
        return "round is not a whole number"
    if not isinstance(took_s, (int, float)) or isinstance(took_s, bool) or not 0 <= took_s <= LONGEST_S:
        return "took_s is not a time"
    if not isinstance(tasks, list) or not all(_is_task(task) for task in tasks):
        return "tasks are not a list of kernels with their shapes"
    return ""


def _is_task(task: Any) -> bool:
    return isinstance(task, list) and len(task) == 2 and isinstance(task[0], str) and isinstance(task[1], dict)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
