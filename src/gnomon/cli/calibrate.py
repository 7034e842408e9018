"""`gnomon calibrate`"""

from __future__ import annotations

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("calibrate")(calibrate)


def calibrate(as_json: flags.Json = False) -> None:
    """Measure this machine's GPU and fit a profile to it."""
    from gnomon.api.calibrate import calibrate as answer
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    with Progress("measuring"):
        result = answer()
    emit(result.to_dict(), as_json=as_json)
