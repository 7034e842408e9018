"""`gnomon fit`"""

from __future__ import annotations

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.spec.questions.step import FitQuestion


def add(app: typer.Typer) -> None:
    app.command("fit", cls=PageAsked)(asks(FitQuestion)(fit))


def fit(question: FitQuestion, html: flags.Html = None, as_json: flags.Json = False) -> None:
    """Whether a model fits to be served, and what would make it fit."""
    from gnomon.cli.output import emit

    paths = outputs({FLAG: html}, {"the model": str(question.model), "--on": question.on})
    from gnomon.api.fit import answer

    result = answer(question)
    emit(result.to_dict(), as_json=as_json, files=page(result, paths))
