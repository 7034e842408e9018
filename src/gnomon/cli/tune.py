"""`gnomon tune`"""

from __future__ import annotations

import typer

from gnomon.cli.answered import answered
from gnomon.cli.pages import PageAsked
from gnomon.spec.questions.plans import TuneQuestion


def add(app: typer.Typer) -> None:
    app.command("tune", cls=PageAsked)(answered(TuneQuestion, "gnomon.api.tune", "tuning"))
