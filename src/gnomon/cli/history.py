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
    from gnomon.report.opened import opens
    from gnomon.store import history as entries

    found = entries(limit)
    runs: list[dict[str, Any]] = [
        {"id": entry.id, "kind": entry.kind, "saved_s": entry.saved_s, "title": str(entry.payload.get("title", ""))}
        for entry in found
    ]
    answer: dict[str, Any] = {"schema": "gnomon.history/1", "runs": runs}
    if not as_json:  # the text proposes the newest that can be opened
        answer["opens"] = next((entry.id for entry in found if opens(entry.payload)), None)
    emit(answer, as_json=as_json, keep=False)
