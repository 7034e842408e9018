"""`gnomon calibrate`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("calibrate")(calibrate)


def _seconds(text: Any) -> float:
    from gnomon.units import parse_duration

    return parse_duration(text, "--budget")


def calibrate(
    out: Annotated[
        str, typer.Option("--out", metavar="FILE.csv", help="The table of measurements; one begun earlier goes on.")
    ] = "calibration.csv",
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
        float, typer.Option("--budget", parser=_seconds, metavar="TIME", help="How long to measure, such as 8m.")
    ] = 480.0,
    as_json: flags.Json = False,
) -> None:
    """Measure this machine's GPU and fit its operators."""
    import sys
    from contextlib import redirect_stdout

    from gnomon.cli.files import output_file
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    path = output_file(out, "--out") if source is None else None
    kept = output_file(profile, "--profile") if profile is not None else None
    from gnomon.api.calibrate import calibrate as answer

    chosen = [name.strip() for name in families.split(",")] if families else None
    with redirect_stdout(sys.stderr), Progress("measuring") as tick:
        result = answer(
            path or out, source=source, on=on, profile=kept, families=chosen, budget_s=budget, progress=tick
        )
    emit(result.to_dict(), as_json=as_json)
