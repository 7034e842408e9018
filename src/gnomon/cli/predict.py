"""`gnomon predict`"""

from __future__ import annotations

import typer

from gnomon.cli.answered import answered
from gnomon.cli.pages import PageAsked
from gnomon.spec.questions.step import PredictQuestion


def add(app: typer.Typer) -> None:
    app.command("predict", cls=PageAsked)(answered(PredictQuestion, "gnomon.api.predict"))
