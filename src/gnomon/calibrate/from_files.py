"""Measurements that are read, not made: tables of operators, and an engine's steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnomon.calibrate import readers
from gnomon.calibrate.collect import notes_of
from gnomon.calibrate.engine_overheads import EngineCalibrated, kept
from gnomon.calibrate.plan_file import plan_head
from gnomon.calibrate.profiles import Calibrated, MeasuredTable, fitted
from gnomon.calibrate.readers import parquet
from gnomon.errors import CalibrationError, InputError, UnknownNameError
from gnomon.load.chips import chip as find_chip
from gnomon.load.files import as_path
from gnomon.spec import Chip
from gnomon.spec.questions.running import CalibrateQuestion

SERVING = ("vllm", "")
"""Whose operators a chip's own profile holds; other frameworks have files of their own."""


def fitted_from(question: CalibrateQuestion) -> Calibrated | EngineCalibrated | None:
    """What is fitted to a file that was measured before: a CSV or Parquet table of operators, steps of
    `gnomon calibrate --engine`. None where it holds results of a whole deployment, which nothing is fitted to."""
    assert question.source is not None
    path, on = as_path(question.source), question.on
    kind = readers.kind_of(path)
    if kind == readers.CSV:
        return fitted(table_of(path, on), families=question.families, profile=question.profile)
    if kind == readers.PARQUET:
        return _operators(path, on, question.families, question.profile)
    for flag, given in (("--families", question.families), ("--profile", question.profile)):
        if given is not None:
            raise InputError("only tables of operators are fitted to a profile", where=flag, hint="Leave it out.")
    return _steps(path, on) if kind == readers.STEPS else None


def table_of(path: Path, on: str | None) -> MeasuredTable:
    """A CSV table; the plan beside it says what it was measured on, else `on` does."""
    head = plan_head(path)
    if on is None and not head:
        raise InputError("a table does not say which chip it was measured on", where="--on", hint="Give --on CHIP.")
    chip = find_chip(on or head["chip"])
    if head.get("chip", chip.name) != chip.name:
        raise InputError(f"the table was measured on {head['chip']}", where="--on", hint="Leave it out.")
    return MeasuredTable(
        chip=chip,
        table=path,
        date=head.get("date", time.strftime("%Y-%m-%d")),
        versions=head.get("versions", {}),
        notes=notes_of(head),
    )


def _operators(path: Path, on: str | None, families: Sequence[str] | None, profile: str | Path | None) -> Calibrated:
    """One profile a framework; the first is the answer, the others are named in its notes."""
    found = parquet.operators(path)
    if profile is not None and len(found) > 1:
        names = ", ".join(one.framework for one in found)
        raise InputError(
            f"holds several frameworks ({names})", where="--profile", hint="Leave it out, or name one file."
        )
    chip = _chip(on, found[0].device, str(path))
    answers: dict[str, Calibrated] = {}
    refused: dict[str, CalibrationError] = {}
    for one in found:
        try:
            answers[one.framework] = _one_framework(one, chip, path, families, profile)
        except CalibrationError as problem:
            refused[one.framework] = problem
    if not answers:
        raise next(iter(refused.values()))
    first, *rest = answers
    others = [f"{name}: {answers[name].profile}" for name in rest]
    left = [f"{name} is left out: {problem.message}" for name, problem in refused.items()]
    return replace(answers[first], notes=(*answers[first].notes, *others, *left))


def _one_framework(
    one: parquet.Operators, chip: Chip, path: Path, families: Sequence[str] | None, profile: str | Path | None
) -> Calibrated:
    left = [f"left out {count:,} rows of {one.framework} ({what})" for what, count in one.left_out.items()]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table.csv")
        parquet.write(one.rows, table)
        measured = MeasuredTable(
            chip=chip,
            table=table,
            date=time.strftime("%Y-%m-%d"),
            versions={one.framework: one.version},
            rows={"read": len(one.rows)},
            notes=(f"{one.framework} {one.version}, as published", *left),
            source=str(path),
        )
        return fitted(
            measured, families=families, profile=profile, framework="" if one.framework in SERVING else one.framework
        )  # fmt: skip


def _chip(on: str | None, device: str, where: str) -> Chip:
    """The chip that was named, which must be the one the rows name where they do."""
    try:
        own = find_chip(device) if device else None
    except UnknownNameError:
        own = None
    if on is None and own is None:
        raise InputError(f"{where} does not say which chip it was measured on", where="--on", hint="Give --on CHIP.")
    chip = find_chip(on) if on else own
    assert chip is not None
    if own is not None and own.name != chip.name:
        raise InputError(f"was measured on {device}, not on {chip.name}", where=where, hint="Leave --on out.")
    return chip


def _steps(path: Path, on: str | None) -> EngineCalibrated:
    from gnomon.calibrate.engine_fit import overheads
    from gnomon.calibrate.engine_run import ENGINES, launches
    from gnomon.calibrate.readers.engine_steps import check_steps

    data = readers.steps(path)
    check_steps(data, str(path), ENGINES)
    if data["engine"] == "transformers":
        return kept(launches(data, str(path)), str(path))
    return kept(overheads(data, _chip(on, data["versions"].get("gpu", ""), str(path)), str(path)), str(path))
