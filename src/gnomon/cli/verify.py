"""`gnomon verify`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.errors import InputError


def add(app: typer.Typer) -> None:
    app.command("verify")(verify)


def verify(
    plan: Annotated[
        str,
        typer.Argument(metavar="PLAN", help="A plan's file, a run's id, `last`, or an earlier measurement's .json."),
    ],
    rate: Annotated[
        list[float] | None,
        typer.Option(
            "--rate",
            parser=flags.rate("--rate"),
            metavar="R",
            help="Requests a second of a served load; may be repeated.",
        ),
    ] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Also measure prompts and decodes by themselves.")] = False,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE.json", help="Keep what was measured.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Run a plan for real: measured beside predicted."""
    from gnomon.cli.files import keep_apart, output_file
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    if plan.endswith(".json"):
        _refuse_measuring({"--rate": bool(rate), "--probe": probe, "--out": out is not None})
    path = output_file(out, "--out") if out is not None else None
    keep_apart({"--out": path} if path else {}, plan, "the plan")
    from gnomon.api.verify import verify as answer

    with Progress("measuring") as tick:
        result = answer(plan, rates=rate, probe=probe, out=path, progress=lambda text: tick(text=text))
    emit(result.to_dict(), as_json=as_json)


def _refuse_measuring(given: dict[str, bool]) -> None:
    for flag, wanted in given.items():
        if wanted:
            hint = "Leave it out, or give the plan to measure again."
            raise InputError("a kept measurement is only compared", where=flag, hint=hint)
