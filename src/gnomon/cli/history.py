"""`gnomon history`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("history")(history)


def history(
    limit: Annotated[
        int,
        typer.Option(
            "--limit", parser=flags.whole("--limit", most=1_000_000), metavar="N", help="How many, newest first."
        ),
    ] = 20,
    as_json: flags.Json = False,
) -> None:
    """Earlier answers, newest first."""
    from gnomon.api.explain import can_open
    from gnomon.cli.output import emit
    from gnomon.spec.answers import History, KeptRun
    from gnomon.store import history as entries

    found = entries(limit)
    runs = (
        KeptRun(id=run.id, kind=run.kind, saved_s=run.saved_s, title=str(run.payload.get("title", ""))) for run in found
    )
    # The text proposes the newest that can be opened.
    opens = "" if as_json else next((run.id for run in found if can_open(run)), "")
    emit(History(runs=tuple(runs), opens=opens), as_json=as_json, keep=False)
