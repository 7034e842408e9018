"""`gnomon try`"""

from __future__ import annotations

import typer

from gnomon.cli.answered import answered
from gnomon.cli.pages import PageAsked
from gnomon.spec.questions.tried import TryQuestion


def add(app: typer.Typer) -> None:
    app.command("try", cls=PageAsked)(answered(TryQuestion, "gnomon.papers.tried", "searching plans"))
