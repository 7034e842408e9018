"""`gnomon verify`"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.errors import InputError, UnwrittenError


def add(app: typer.Typer) -> None:
    app.command("verify", cls=PageAsked)(verify)


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
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """Run a plan for real: measured beside predicted."""
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    if plan.endswith(".json"):
        _refuse_measuring({"--rate": bool(rate), "--probe": probe, "--out": out is not None})
    paths = outputs({"--out": out, FLAG: html}, {"the plan": plan})
    from gnomon.api.verify import verify as answer

    try:
        with Progress("measuring") as tick:
            result = answer(
                plan, rates=rate, probe=probe, out=paths.get("--out"), progress=lambda text: tick(text=text)
            )
    except UnwrittenError as problem:
        if FLAG not in paths:
            raise
        unwritten: Callable[[], None] = partial(_raise, problem)
        emit(problem.answer, as_json=as_json, files=[unwritten, *page(problem.answer, paths)])
        return
    emit(result, as_json=as_json, files=page(result, paths))


def _raise(problem: UnwrittenError) -> None:
    raise problem


def _refuse_measuring(given: dict[str, bool]) -> None:
    for flag, wanted in given.items():
        if wanted:
            hint = "Leave it out, or give the plan to measure again."
            raise InputError("a kept measurement is only compared", where=flag, hint=hint)
