"""`gnomon chips`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("The chips Gnomon knows.")
    commands.callback(invoke_without_command=True)(chips)
    commands.command("show")(show)
    app.add_typer(commands, name="chips")


def chips(context: typer.Context, as_json: flags.Json = False) -> None:
    """The chips Gnomon knows."""
    if context.invoked_subcommand is None:
        _print(None, as_json)


def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A chip's name or alias.")],
    as_json: flags.Json = False,
) -> None:
    """Everything about one chip, with its sources."""
    outer = context.parent.params.get("as_json", False) if context.parent else False
    _print(name, as_json or outer)


def _print(name: str | None, as_json: bool) -> None:
    from gnomon.api.known import chips as answer
    from gnomon.cli.output import emit

    emit(answer(name).to_dict(), as_json=as_json, keep=False)
