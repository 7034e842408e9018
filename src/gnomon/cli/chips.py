"""`gnomon chips`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gnomon.cli import flags, names

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", autocompletion=names.chips, help="A chip's name, an alias, or its file."),
]
SORTS = "family (the default), name, memory, bandwidth, rate, power or price"


def add(app: typer.Typer) -> None:
    from gnomon.cli.app import group

    commands = group("The chips Gnomon knows.")
    commands.callback(invoke_without_command=True)(chips)
    commands.command("show")(show)
    commands.command("new")(new)
    app.add_typer(commands, name="chips")


def chips(
    context: typer.Context,
    vendor: Annotated[
        str | None, typer.Option("--vendor", parser=flags.word("--vendor"), metavar="NAME", help="Only this maker's.")
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option("--architecture", parser=flags.word("--architecture"), metavar="NAME", help="Only this one's."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", parser=flags.word("--memory"), metavar="SIZE", help="This much at least: 80GB."),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            parser=flags.word("--sort"),
            autocompletion=names.words(names.orders),
            metavar="ORDER",
            help=f"By {SORTS}.",
        ),
    ] = "family",
    as_json: flags.Json = False,
) -> None:
    """The chips Gnomon knows."""
    if context.invoked_subcommand is None:
        from gnomon.api.known import chips as answer

        _print(answer(vendor=vendor, architecture=architecture, memory=memory, sort=sort), as_json)


def show(context: typer.Context, name: Name, as_json: flags.Json = False) -> None:
    """Everything about one chip, with its sources."""
    from gnomon.api.known import chips as answer

    _print(answer(name), as_json or _asked_before(context))


def new(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a chip of your own.")],
    like: Annotated[
        str,
        typer.Option(
            "--like", autocompletion=names.chips, metavar="CHIP", help="The chip whose figures to begin with."
        ),
    ] = "H100",
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of the shipped chip of that name.")
    ] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE.yaml", help="Write it here, not into Gnomon's own folder.")
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """A file that describes a chip of your own."""
    from gnomon.api.known import new_chip

    _print(new_chip(name, like=like, replace=replace, out=out), as_json or _asked_before(context))


def _asked_before(context: typer.Context) -> bool:
    """`gnomon chips --json show H100`."""
    return bool(context.parent.params.get("as_json", False)) if context.parent else False


def _print(answer: Any, as_json: bool) -> None:
    from gnomon.cli.output import emit

    emit(answer, as_json=as_json, keep=False)
