"""`gnomon history`"""

from __future__ import annotations

from typing import Annotated, Any

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
    from gnomon.cli.output import emit
    from gnomon.store import history as entries

    runs: list[dict[str, Any]] = [
        {"id": entry.id, "kind": entry.kind, "saved_s": entry.saved_s, "title": str(entry.payload.get("title", ""))}
        for entry in entries(limit)
    ]
    emit({"schema": "gnomon.history/1", "runs": runs}, as_json=as_json, keep=False)
