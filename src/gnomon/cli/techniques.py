"""`gnomon techniques`"""

from __future__ import annotations

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("techniques")(techniques)


def techniques(as_json: flags.Json = False) -> None:
    """Techniques from papers that plans can use."""
    from gnomon.api.known import techniques as known
    from gnomon.cli.output import emit

    emit(known(), as_json=as_json, keep=False)
