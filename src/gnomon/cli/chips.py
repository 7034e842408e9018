"""`gnomon chips`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gnomon.cli import flags, names
from gnomon.cli.generate import asks
from gnomon.spec.questions.known import ChipsQuestion, NewChipQuestion

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", autocompletion=names.chips, help="A chip's name, an alias, or its file."),
]


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("The chips Gnomon knows.")
    commands.callback(invoke_without_command=True)(asks(ChipsQuestion)(chips))
    commands.command("show")(show)
    commands.command("new")(asks(NewChipQuestion)(new))
    app.add_typer(commands, name="chips")


def chips(question: ChipsQuestion, context: typer.Context, as_json: flags.Json = False) -> None:
    """The chips Gnomon knows."""
    if context.invoked_subcommand is None:
        from gnomon.load.listings import list_chips

        _show(list_chips(question), context, as_json)


def show(context: typer.Context, name: Name, as_json: flags.Json = False) -> None:
    """Everything about one chip, with its sources."""
    from gnomon.api.known import chips as answer

    _show(answer(name), context, as_json)


def new(question: NewChipQuestion, context: typer.Context, as_json: flags.Json = False) -> None:
    """Write a file that describes a custom chip."""
    from gnomon.load.listings import write_chip

    _show(write_chip(question), context, as_json)


def _show(answer: Any, context: typer.Context, as_json: bool) -> None:
    from gnomon.cli.output import show

    show(answer, context, as_json)
