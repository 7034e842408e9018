"""`gnomon explain`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("explain")(explain)


def explain(
    what: Annotated[
        str, typer.Argument(metavar="[last|ID|FILE]", help="A run's id, a JSON answer, or `last`.")
    ] = "last",
    op: Annotated[str | None, typer.Option("--op", metavar="NAME", help="Open this operator.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Open up a number down to its formulas and sources."""
    from gnomon.api.explain import explain as answer
    from gnomon.cli.output import emit

    emit(answer(what, op=op).to_dict(), as_json=as_json, keep=False)
