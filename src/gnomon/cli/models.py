"""`gnomon models`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gnomon.cli import flags, names
from gnomon.cli.generate import asks
from gnomon.spec.questions.known import ModelsQuestion


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("The models Gnomon knows, and the shapes of any other.")
    commands.callback(invoke_without_command=True)(asks(ModelsQuestion)(models))
    commands.command("show")(show)
    app.add_typer(commands, name="models")


def models(question: ModelsQuestion, context: typer.Context, as_json: flags.Json = False) -> None:
    """The models Gnomon knows."""
    if context.invoked_subcommand is None:
        from gnomon.load.listings import list_models

        _show(list_models(question), context, as_json)


def show(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A known name, a hub id, a folder, or a file.", autocompletion=names.models
        ),
    ],
    shapes: Annotated[
        bool, typer.Option("--shapes", help="Print its shapes as YAML, to start a custom model.")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """One model: its layers, parameters, KV cache and weights."""
    from gnomon.api.known import models as answer

    found = answer(name)
    as_json = as_json or bool(context.parent and context.parent.params.get("as_json"))
    if shapes:
        from gnomon.cli.output import print_json, put
        from gnomon.load.shapes import shapes_to_yaml

        written = dict(found.models[0]["shapes"])
        print_json(written) if as_json else put(shapes_to_yaml(written))
        return
    _show(found, context, as_json)


def _show(found: Any, context: typer.Context, as_json: bool) -> None:
    from gnomon.cli.output import show

    show(found, context, as_json)
