"""`gnomon calibrate`"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gnomon.cli import flags
from gnomon.errors import InputError


def add(app: typer.Typer) -> None:
    app.command("calibrate")(calibrate)


TABLE, STEPS = "calibration.csv", "engine.json"


def _refuse_measuring(given: Mapping[str, object], why: str = "nothing is measured with --from") -> None:
    for flag, value in given.items():
        if value is not None:
            raise InputError(why, where=flag, hint="Leave one of them out.")


def _seconds(text: Any) -> float:
    from gnomon.units import parse_duration

    return parse_duration(text, "--budget")


def calibrate(
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE.csv", help=f"The table of measurements ({TABLE}); one begun earlier goes on."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Read measurements (CSV, Parquet, an engine's steps, vLLM or AIPerf results); measure nothing.",
        ),
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="CHIP", help="With --from: the chip it was measured on.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="FILE.yaml", help="Write the profile here, not where it is used.")
    ] = None,
    families: Annotated[
        str | None, typer.Option("--families", metavar="NAME[,NAME]", help="Only these families of operators.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", parser=_seconds, metavar="TIME", help="How long to measure, earlier runs counted in (7m20s)."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Measure a card that others use or that is held back; the profile says so.")
    ] = False,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="ENGINE", help="Measure this engine's own overheads instead.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="With --engine: what it runs, with dummy weights.")
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Measure this machine's GPU, or an engine on it, and fit it."""
    import sys
    from contextlib import redirect_stdout

    from gnomon.cli.files import keep_apart, output_files
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    if source is not None:
        _refuse_measuring({"--out": out, "--budget": budget, "--force": force or None, "--engine": engine})
    if engine is not None:
        others = {"--budget": budget, "--families": families, "--profile": profile, "--force": force or None}
        _refuse_measuring(others, "is of operators, and --engine measures an engine")
    table = out or (STEPS if engine else TABLE)
    paths = output_files({"--out": table if source is None else None, "--profile": profile})
    keep_apart(paths, source, "--from")
    from gnomon.api.calibrate import BUDGET_S
    from gnomon.api.calibrate import calibrate as answer

    chosen = [name.strip() for name in families.split(",")] if families is not None else None
    with redirect_stdout(sys.stderr), Progress("measuring") as tick:
        result = answer(
            paths.get("--out", table),
            source=source,
            on=on,
            profile=paths.get("--profile"),
            families=chosen,
            budget_s=BUDGET_S if budget is None else budget,
            force=force,
            engine=engine,
            model=model,
            progress=tick,
        )
    emit(result, as_json=as_json)
