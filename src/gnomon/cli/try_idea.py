"""`gnomon try`"""

from __future__ import annotations

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.spec.questions.tried import TryQuestion


def add(app: typer.Typer) -> None:
    app.command("try", cls=PageAsked)(asks(TryQuestion)(try_idea))


def try_idea(question: TryQuestion, html: flags.Html = None, as_json: flags.Json = False) -> None:
    """What a paper's idea would bring on your model and chips."""
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress
    from gnomon.papers.tried import answer

    paths = outputs({FLAG: html}, {"--model": str(question.model), "--on": str(question.on)})
    with Progress("searching plans") as tick:
        result = answer(question, tick)
    emit(result.to_dict(), as_json=as_json, files=page(result, paths))
