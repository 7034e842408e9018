"""`gnomon verify`"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.errors import InputError, UnwrittenError
from gnomon.spec.questions.running import VerifyQuestion


def add(app: typer.Typer) -> None:
    app.command("verify", cls=PageAsked)(asks(VerifyQuestion)(verify))


def verify(question: VerifyQuestion, html: flags.Html = None, as_json: flags.Json = False) -> None:
    """Run a plan for real: measured against predicted."""
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    plan = str(question.plan)
    if plan.endswith(".json"):
        given = {"--rate": bool(question.rate), "--probe": question.probe, "--out": question.out is not None}
        _refuse_measuring(given)
    paths = outputs({"--out": _text(question.out), FLAG: html}, {"the plan": plan})
    from gnomon.api.verify import answer

    try:
        with Progress("measuring") as tick:
            asked = replace(question, out=paths.get("--out"))
            result = answer(asked, lambda text: tick(text=text))
    except UnwrittenError as problem:
        if FLAG not in paths:
            raise
        unwritten: Callable[[], None] = partial(_raise, problem)
        emit(problem.answer, as_json=as_json, files=[unwritten, *page(problem.answer, paths)])
        return
    emit(result, as_json=as_json, files=page(result, paths))


def _text(path: object) -> str | None:
    return None if path is None else str(path)


def _raise(problem: UnwrittenError) -> None:
    raise problem


def _refuse_measuring(given: dict[str, bool]) -> None:
    for flag, wanted in given.items():
        if wanted:
            hint = "Leave it out, or give the plan to measure it again."
            raise InputError("a stored measurement is only compared", where=flag, hint=hint)
