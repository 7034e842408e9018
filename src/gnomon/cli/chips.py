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

        _print(list_chips(question), as_json)


def show(context: typer.Context, name: Name, as_json: flags.Json = False) -> None:
    """Everything about one chip, with its sources."""
    from gnomon.api.known import chips as answer

    _print(answer(name), as_json or _asked_before(context))


def new(question: NewChipQuestion, context: typer.Context, as_json: flags.Json = False) -> None:
    """A file that describes a chip of your own."""
    from gnomon.load.listings import write_chip

    _print(write_chip(question), as_json or _asked_before(context))


def _asked_before(context: typer.Context) -> bool:
    """`gnomon chips --json show H100`."""
    return bool(context.parent.params.get("as_json", False)) if context.parent else False


def _print(answer: Any, as_json: bool) -> None:
    from gnomon.cli.output import emit

    emit(answer, as_json=as_json, keep=False)
