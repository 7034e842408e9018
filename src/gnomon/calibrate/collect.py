"""The table that measurements grow into, line by line, and beside it what was planned: a run cut short goes on where
it was, to the same profile.

Which shapes are measured next depends on the rows before, so each choice is written down before its first row is
measured. What cannot be measured here is written down too, with the reason.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon.calibrate.plan_file import LONGEST_S, MAX_BYTES, SCHEMA, plan_lines, plan_path
from gnomon.calibrate.shapes import FAMILIES, Task
from gnomon.calibrate.table import LEAST_US, MOST_US, number
from gnomon.errors import CalibrationError, InputError, MissingExtraError
from gnomon.load.files import read_text

__all__ = ["COLUMNS", "FAMILIES", "Log", "key", "torch_module"]

COLUMNS = (
    "op", "dtype", "m", "n", "k", "batch", "tokens", "hidden", "inter", "experts", "topk", "heads", "kv_heads",
    "q_len", "kv_len", "head_dim", "causal", "bytes_read", "bytes_written", "kernel", "time_us", "spread",
    "burst_us", "watts", "sm_hz", "flops", "bytes", "task", "framework", "ranks", "temperature_c", "took_s",
)  # fmt: skip
NEW = "Give --out a new file."


def torch_module() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "torch", "calibration") from None
    if not torch.cuda.is_available():
        raise CalibrationError("no CUDA device is visible", hint="run `gnomon calibrate` on the machine with the GPU")
    return torch


def key(task: Task) -> str:
    """A task as text, by which its row is found again."""
    return json.dumps([task[0], task[1]], sort_keys=True, separators=(",", ":"))


@dataclass(kw_only=True)
class Log:
    """A table of measurements and the plan beside it, as far as they have come."""

    table: Path
    head: dict[str, Any]
    """Chip, versions and date of the run that began the table."""
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    """Measured rows by task."""
    choices: dict[tuple[str, int], list[Task]] = field(default_factory=dict)
    """Tasks chosen for a design in a round."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why tasks could not be measured."""
    forced: list[str] = field(default_factory=list)
    """What the user was told and measured in spite of."""
    thought_s: float = 0.0
    """What choosing took, beside measuring."""

    @classmethod
    def open(cls, table: Path, head: Mapping[str, Any]) -> Log:
        """Go on with a table, or begin one. A file of another kind, chip or version is refused as it stands."""
        log = cls(table=table, head=dict(head))
        log.rows = _rows(table)
        lines = _lines(plan_path(table))
        log._refuse_halves(lines)
        if lines:
            log._take(lines, head)
        else:
            log._say({"schema": SCHEMA, **head}, fresh=True)
        if not _has_line(table):
            _append(table, _line(COLUMNS), fresh=True)
        return log

    @property
    def spent_s(self) -> float:
        return self.thought_s + sum(float(row["took_s"] or 0.0) for row in self.rows.values())

    def add(self, task: Task, row: Mapping[str, Any]) -> None:
        """A measured row, on disk when this returns."""
        text = {name: _cell(row.get(name, "")) for name in COLUMNS} | {"task": key(task)}
        _append(self.table, _line([text[name] for name in COLUMNS]))
        self.rows[key(task)] = text

    def skip(self, task: Task, reason: str) -> None:
        self.skipped[key(task)] = reason
        self._say({"skipped": key(task), "reason": reason})

    def choose(self, design: str, turn: int, tasks: list[Task], took_s: float = 0.0) -> None:
        self.choices[design, turn] = tasks
        self.thought_s += took_s
        choice = {"design": design, "round": turn, "took_s": round(took_s, 3)}
        self._say(choice | {"tasks": [list(task) for task in tasks]})

    def force(self, problems: tuple[str, ...]) -> None:
        new = [problem for problem in problems if problem not in self.forced]
        if new:
            self.forced += new
            self._say({"forced": new})

    def _say(self, line: Mapping[str, Any], *, fresh: bool = False) -> None:
        _append(plan_path(self.table), json.dumps(line, separators=(",", ":")) + "\n", fresh=fresh)

    def _take(self, lines: list[dict[str, Any]], head: Mapping[str, Any]) -> None:
        begun = lines[0]
        for name in ("chip", "versions"):
            if begun.get(name) != head[name]:
                raise CalibrationError(
                    f"was begun with {name} {_short(begun.get(name))}, and this is {_short(head[name])}",
                    where=str(self.table), hint=NEW,
                )  # fmt: skip
        self.head = {name: begun[name] for name in begun if name != "schema"}
        for line in lines[1:]:
            if "skipped" in line:
                self.skipped[line["skipped"]] = line["reason"]
            elif "forced" in line:
                self.forced += line["forced"]
            else:
                self.choices[line["design"], line["round"]] = [(name, shape) for name, shape in line["tasks"]]
                self.thought_s += float(line["took_s"])

    def _refuse_halves(self, lines: list[dict[str, Any]]) -> None:
        """A table whose plan is gone was measured on who knows what; a plan alone has chosen by rows that are gone. The
        head of a plan stands there before its table does."""
        plan = plan_path(self.table)
        if self.rows and not lines:
            raise CalibrationError(f"has rows, and the plan beside it ({plan.name}) is gone", where=str(self.table),
                                   hint=f"Put it back. {NEW}")  # fmt: skip
        if len(lines) > 1 and not _has_line(self.table):
            raise CalibrationError(f"is a plan whose table ({self.table.name}) is gone", where=str(plan),
                                   hint=f"Put it back. {NEW}")  # fmt: skip


def notes_of(head: Mapping[str, Any]) -> tuple[str, ...]:
    """What a reader of the profile should know of the card."""
    return (*head.get("notes", ()), *(f"measured although {problem}" for problem in head.get("forced", ())))


def check_columns(found: tuple[str, ...], where: str) -> None:
    """The header of a table must be ours."""
    if found == COLUMNS:
        return
    hint = NEW
    if found[: len(COLUMNS)] == COLUMNS:
        extra = ", ".join(found[len(COLUMNS) :])
        raise CalibrationError(f"was written by a newer Gnomon (columns {extra})", where=where, hint=hint)
    if found and found == COLUMNS[: len(found)]:
        raise CalibrationError("was written by an older Gnomon, and is only read with --from", where=where, hint=hint)
    raise CalibrationError("the file holds another table", where=where, hint=hint)


def _rows(path: Path) -> dict[str, dict[str, str]]:
    """Rows by task; a last line that was cut short is dropped from the file."""
    if not path.exists():
        return {}
    text = _whole(path, _line(COLUMNS))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = tuple(next(reader, ()))
        if header:
            check_columns(header, str(path))
        found = {}
        for place, cells in enumerate(reader, 2):
            if len(cells) != len(header):
                raise CalibrationError("has not as many fields as the header", where=f"{path} line {place}")
            row = dict(zip(header, cells, strict=True))
            number(row, "time_us", f"{path} line {place}", LEAST_US, MOST_US)
            if row["took_s"]:
                number(row, "took_s", f"{path} line {place}", 0.0, LONGEST_S)
            found[row["task"]] = row
    except csv.Error as problem:
        raise CalibrationError(f"is no table: {problem}", where=str(path)) from None
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return plan_lines(_whole(path, '{"schema":"' + SCHEMA.partition("/")[0]), path)


def _whole(path: Path, begins: str) -> str:
    """The text up to its last whole line, which is all that stays of the file where it is ours."""
    text = read_text(path, MAX_BYTES)
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        if not (begins.startswith(text) or text.startswith(begins)):
            raise CalibrationError("the file holds something else", where=str(path), hint=NEW)
        if whole:
            path.write_text(whole, encoding="utf-8", newline="")
    return whole


def _has_line(path: Path) -> bool:
    return path.exists() and b"\n" in path.read_bytes()


def _append(path: Path, text: str, *, fresh: bool = False) -> None:
    try:
        with path.open("w" if fresh else "a", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as problem:
        raise InputError(f"cannot be written: {problem.strerror or problem}", where=str(path)) from None


def _line(cells: Any) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow(cells)
    return file.getvalue()


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, text in value.items())
    return str(value)
