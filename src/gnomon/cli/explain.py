"""`gnomon explain`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.pages import FLAG, PageAsked, outputs, page


def add(app: typer.Typer) -> None:
    app.command("explain", cls=PageAsked)(explain)


def explain(
    what: Annotated[
        str, typer.Argument(metavar="[last|ID|FILE]", help="A run's id, a JSON answer, or `last`.")
    ] = "last",
    op: Annotated[str | None, typer.Option("--op", metavar="NAME", help="Show only this operator.")] = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """Break an answer down to its formulas and sources."""
    from gnomon.api.explain import explain as answer
    from gnomon.cli.output import emit

    paths = outputs({FLAG: html}, {"the answer": what})
    result = answer(what, op=op)
    emit(result, as_json=as_json, keep=False, files=page(result, paths))
