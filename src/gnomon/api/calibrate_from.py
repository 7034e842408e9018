"""Measurements that are read, not made: tables of operators, an engine's steps, and whole deployments' results."""

from __future__ import annotations

import json
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gnomon.api.calibrate import Calibrated, MeasuredTable, check_families, fitted
from gnomon.api.calibrate_engine import EngineCalibrated, kept
from gnomon.calibrate import readers
from gnomon.calibrate.collect import notes_of
from gnomon.calibrate.plan_file import plan_head
from gnomon.calibrate.readers import parquet
from gnomon.calibrate.readers.results import Deployed
from gnomon.errors import CalibrationError, InputError, UnknownNameError, UnwrittenError
from gnomon.load.chips import chip as find_chip
from gnomon.load.files import as_path
from gnomon.paths import home, unwritten
from gnomon.spec import Chip
from gnomon.spec.answers import Result

SERVING = ("vllm", "")
"""Whose operators a chip's own profile holds; other frameworks have files of their own."""


@dataclass(frozen=True, kw_only=True)
class Checked(Result):
    """A measured deployment beside its prediction. It is kept as a check; no coefficient follows from it."""

    SCHEMA = "calibrate.check"
    title: str
    measured: Mapping[str, Any]
    predicted: Mapping[str, float]
    errors: Mapping[str, float]
    """Predicted over measured, less one."""
    method: str
    kept: str


def calibrate_from(
    source: str | Path,
    *,
    on: str | None = None,
    model: str | None = None,
    profile: str | Path | None = None,
    families: Sequence[str] | None = None,
) -> Calibrated | EngineCalibrated | Checked:
    """Fit what a file holds, or compare it with the prediction: a CSV or Parquet table of operators, steps of
    `gnomon calibrate --engine`, results of `vllm bench serve` or AIPerf."""
    path = as_path(source)
    kind = readers.kind_of(path)
    check_families(families)
    if kind == readers.CSV:
        return fitted(table_of(path, on), families=families, profile=profile)
    if kind == readers.PARQUET:
        return _operators(path, on, families, profile)
    for flag, given in (("--families", families), ("--profile", profile)):
        if given is not None:
            raise InputError("only tables of operators are fitted to a profile", where=flag, hint="Leave it out.")
    return _steps(path, on) if kind == readers.STEPS else _compared(readers.deployed(path), path, on, model)


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


def _compared(found: Deployed, path: Path, on: str | None, model: str | None) -> Checked:
    """The same load predicted: simulated where requests came at a rate, else a step of as many as were under way."""
    if on is None:
        raise InputError("a result does not say which chips it was measured on", where="--on", hint="Give --on CHIP.")
    name = model or found.model.rpartition("/")[2].lower()
    if model is None and ":" in name:  # a name of code to run is taken from the user alone
        raise InputError(f"'{found.model}' is no model we know", where="--model", hint="Give --model.")
    sizes = round(found.input_tokens), round(found.output_tokens)
    try:
        method, predicted = _predicted(found, name, on, *sizes)
    except UnknownNameError as problem:
        if model is None and problem.where in ("", "MODEL"):
            raise InputError(f"'{found.model}' is no model we know", where="--model", hint="Give --model.") from None
        raise
    measured = {"ttft_s": found.ttft_s, "tpot_s": found.tpot_s, "output_tokens_per_s": found.output_tokens_per_s}
    errors = {key: predicted[key] / measured[key] - 1 for key in predicted}
    target = home() / "checks" / f"{path.stem}-{zlib.crc32(path.read_bytes()):08x}.json"
    answer = Checked(
        title=f"{found.tool}: {found.model or name} on {on}, beside its prediction",
        measured=asdict(found),
        predicted=predicted,
        errors=errors,
        method=method,
        kept=str(target),
    )
    unkept = unwritten(target, json.dumps(answer.to_dict(), indent=1) + "\n")
    if unkept is not None:
        raise UnwrittenError(unkept, answer)
    return answer


def _predicted(found: Deployed, model: str, on: str, new: int, made: int) -> tuple[str, dict[str, float]]:
    if found.rate_per_s is not None and found.concurrency is None:
        from gnomon.api.simulate import simulate_serving

        run = simulate_serving(
            model, on=on, rate=found.rate_per_s, input=new, output=made, requests=found.requests
        )  # fmt: skip
        figures = {"ttft_s": run.ttft_s["p50"], "tpot_s": run.tpot_s["p50"]}
        return "simulated at the same rate", figures | {"output_tokens_per_s": run.output_tokens_per_s}
    from gnomon.api.predict import predict

    running = min(found.concurrency or found.requests, found.requests)
    step = predict(model, on=on, phase="decode", batch=running, context=new + made // 2)
    return f"one decode step of {running} sequences: first tokens depend on the order of arrivals", {
        "tpot_s": step.time_s.value
    }
