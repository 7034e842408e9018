"""`gnomon calibrate`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gnomon.cli import flags
from gnomon.errors import InputError


def add(app: typer.Typer) -> None:
    app.command("calibrate")(calibrate)


TABLE = "calibration.csv"


def _refuse_measuring(given: dict[str, object]) -> None:
    for flag, value in given.items():
        if value is not None:
            raise InputError("nothing is measured with --from", where=flag, hint="Leave one of them out.")


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
        str | None, typer.Option("--from", metavar="FILE.csv", help="Fit this table; measure nothing.")
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
    as_json: flags.Json = False,
) -> None:
    """Measure this machine's GPU and fit its operators."""
    import sys
    from contextlib import redirect_stdout

    from gnomon.cli.files import keep_apart, output_files
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    if source is not None:
        _refuse_measuring({"--out": out, "--budget": budget, "--force": force or None})
    paths = output_files({"--out": (out or TABLE) if source is None else None, "--profile": profile})
    keep_apart(paths, source, "--from")
    from gnomon.api.calibrate import BUDGET_S
    from gnomon.api.calibrate import calibrate as answer

    chosen = [name.strip() for name in families.split(",")] if families else None
    with redirect_stdout(sys.stderr), Progress("measuring") as tick:
        result = answer(
            paths.get("--out", TABLE),
            source=source,
            on=on,
            profile=paths.get("--profile"),
            families=chosen,
            budget_s=BUDGET_S if budget is None else budget,
            force=force,
            progress=tick,
        )
    emit(result.to_dict(), as_json=as_json)
