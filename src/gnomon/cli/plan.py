"""`gnomon plan serve` and `gnomon plan train`"""

from __future__ import annotations

import typer

from gnomon.cli.answered import answered
from gnomon.cli.pages import PageAsked
from gnomon.spec.questions.objectives import PlanTrainingQuestion
from gnomon.spec.questions.serving import PlanServingQuestion


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("Find the best way to run a model.")
    commands.command("serve", cls=PageAsked)(answered(PlanServingQuestion, "gnomon.api.plan", "searching plans"))
    commands.command("train", cls=PageAsked)(
        answered(PlanTrainingQuestion, "gnomon.api.plan_training", "searching plans")
    )
    app.add_typer(commands, name="plan")
