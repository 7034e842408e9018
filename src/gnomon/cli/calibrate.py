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

    path = output_file(out, "--out")
    from gnomon.api.calibrate import calibrate as answer

    chosen = [name.strip() for name in families.split(",")] if families else None
    with redirect_stdout(sys.stderr), Progress("measuring") as tick:
        result = answer(path, families=chosen, budget_s=budget, progress=tick)
    emit(result.to_dict(), as_json=as_json)
