"""`gnomon verify`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("verify")(verify)


def verify(
    plan: flags.PlanRef,
    rate: Annotated[
        list[float] | None,
        typer.Option("--rate", parser=flags.rate("--rate"), metavar="R", help="Requests a second; may be repeated."),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Run a plan for real: measured beside predicted."""
    from gnomon.api.verify import verify as answer
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    with Progress("measuring"):
        result = answer(plan, rates=rate)
    emit(result.to_dict(), as_json=as_json)
