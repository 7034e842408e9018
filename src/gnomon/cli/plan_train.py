"""`gnomon plan train`"""

from __future__ import annotations

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.spec.questions.training import PlanTrainingQuestion


def add(commands: typer.Typer) -> None:
    commands.command("train", cls=PageAsked)(asks(PlanTrainingQuestion)(train))


def train(question: PlanTrainingQuestion, html: flags.Html = None, as_json: flags.Json = False) -> None:
    """The quickest way to train a model on a cluster, how long it takes, and what it needs."""
    from gnomon.api.plan_training import answer
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    paths = outputs({FLAG: html}, {"the model": str(question.model), "--cluster": str(question.cluster)})
    with Progress("searching plans") as tick:
        report = answer(question, tick)
    emit(report.to_dict(), as_json=as_json, files=page(report, paths))
