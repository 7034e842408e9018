"""`gnomon plan serve` and `gnomon plan train`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags, train_flags
from gnomon.cli.answered import answered
from gnomon.cli.pages import FLAG, PageAsked, outputs, page
from gnomon.spec.questions.serving import PlanServingQuestion


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("Find the best way to run a model.")
    commands.callback()(_group)
    commands.command("serve", cls=PageAsked)(answered(PlanServingQuestion, "gnomon.api.plan", "searching plans"))
    commands.command("train", cls=PageAsked)(train)
    app.add_typer(commands, name="plan")


def _group() -> None:
    """Find the best way to run a model."""


def train(
    model: flags.Model,
    cluster: Annotated[str, typer.Option("--cluster", metavar="CHIP:N", help="The chips to train on.")],
    seq: train_flags.Seq,
    global_batch: train_flags.GlobalBatch,
    tokens: train_flags.Tokens = None,
    optimizer: train_flags.Optimizer = "adamw",
    dtype: flags.Dtype = None,
    engine: train_flags.Engine = "megatron",
    techniques: flags.With = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """The quickest way to train a model on a cluster, how long it takes, and what it needs."""
    from gnomon.api.plan_training import plan_training
    from gnomon.cli.output import emit
    from gnomon.cli.progress import Progress

    paths = outputs({FLAG: html}, {"the model": model, "--cluster": cluster})
    with Progress("searching plans") as tick:
        report = plan_training(
            model,
            cluster=cluster,
            seq=seq,
            global_batch=global_batch,
            tokens=tokens,
            optimizer=optimizer,
            dtype=dtype,
            engine=engine,
            techniques=techniques or (),
            progress=tick,
        )
    emit(report, as_json=as_json, files=page(report, paths))
