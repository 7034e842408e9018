"""`gnomon compare`"""

from __future__ import annotations

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.spec.questions.plans import CompareQuestion


def add(app: typer.Typer) -> None:
    app.command("compare", cls=PageAsked)(asks(CompareQuestion)(compare))


def compare(question: CompareQuestion, html: flags.Html = None, as_json: flags.Json = False) -> None:
    from gnomon.api.compare import answer
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    named = {f"plan {place}": str(plan) for place, plan in enumerate(question.plans, 1)}
    paths = outputs({FLAG: html}, named | {"--trace": str(question.trace or "")})
    with Progress("comparing"):
        result = answer(question)
    emit(result, as_json=as_json, keep=False, files=page(result, paths))
