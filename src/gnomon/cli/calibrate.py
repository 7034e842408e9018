"""`gnomon calibrate`"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.errors import InputError
from gnomon.spec.questions.running import CalibrateQuestion

TABLE, STEPS, ROWS = "calibration.csv", "engine.json", "quick.json"


def add(app: typer.Typer) -> None:
    app.command("calibrate")(asks(CalibrateQuestion)(calibrate))


def _refuse_measuring(given: Mapping[str, object], why: str = "nothing is measured with --from") -> None:
    for flag, value in given.items():
        if value is not None:
            raise InputError(why, where=flag, hint="Leave one of them out.")


def calibrate(question: CalibrateQuestion, as_json: flags.Json = False) -> None:
    """Measure this machine's GPU, or an engine on it, and fit it."""
    import sys
    from contextlib import redirect_stdout

    from gnomon.cli.files import keep_apart, output_files
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    _check(question)
    table = str(question.out or (STEPS if question.engine else ROWS if question.quick else TABLE))
    profile, source = (None if path is None else str(path) for path in (question.profile, question.source))
    paths = output_files({"--out": table if source is None else None, "--profile": profile})
    keep_apart(paths, source, "--from")
    from gnomon.api.calibrate import answer

    with redirect_stdout(sys.stderr), Progress("measuring") as tick:
        asked = replace(question, out=paths.get("--out", table), profile=paths.get("--profile"))
        result = answer(asked, tick)
    emit(result, as_json=as_json)


def _check(question: CalibrateQuestion) -> None:
    """Refuse flags that exclude each other."""
    forced = question.force or None
    if question.source is not None:
        given = {"--out": question.out, "--budget": question.budget, "--force": forced, "--engine": question.engine}
        _refuse_measuring(given)
        _refuse_measuring({"--quick": question.quick or None})
    if question.quick:
        named: dict[str, object] = {"--budget": question.budget, "--families": question.families}
        named |= {"--engine": question.engine, "--model": question.model}
        _refuse_measuring(named, "does not go with --quick")
    elif question.on is not None and question.source is None:
        raise InputError("names the chip of measurements made before", where="--on", hint="Give --from or --quick.")
    if question.engine is not None:
        others = {"--budget": question.budget, "--families": question.families, "--profile": question.profile}
        _refuse_measuring(others | {"--force": forced}, "applies to operators, and --engine measures an engine")
