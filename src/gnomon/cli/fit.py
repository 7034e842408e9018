"""`gnomon fit`"""

from __future__ import annotations

import typer

from gnomon.cli.answered import answered
from gnomon.cli.pages import PageAsked
from gnomon.spec.questions.step import FitQuestion


def add(app: typer.Typer) -> None:
    app.command("fit", cls=PageAsked)(answered(FitQuestion, "gnomon.api.fit"))
