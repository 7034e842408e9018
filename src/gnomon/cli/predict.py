"""`gnomon predict`"""

from __future__ import annotations

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.spec.questions.step import PredictQuestion


def add(app: typer.Typer) -> None:
    app.command("predict", cls=PageAsked)(asks(PredictQuestion)(predict))


def predict(question: PredictQuestion, html: flags.Html = None, as_json: flags.Json = False) -> None:
    """Time, memory, energy and cost of one step."""
    from gnomon.cli.output import emit

    paths = outputs({FLAG: html}, {"the model": str(question.model), "--on": str(question.on)})
    from gnomon.api.predict import answer

    result = answer(question)
    emit(result.to_dict(), as_json=as_json, files=page(result, paths))
