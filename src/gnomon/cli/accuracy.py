"""`gnomon accuracy`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("accuracy")(accuracy)


def accuracy(
    out: Annotated[str | None, typer.Option("--out", metavar="FILE.md", help="Write the page to this file.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Predicted training steps beside published and measured ones."""
    from gnomon.cli.files import output_file
    from gnomon.cli.output import emit, put

    path = output_file(out, "--out") if out is not None else None
    from gnomon.api.accuracy import accuracy as answer
    from gnomon.paths import write_text
    from gnomon.report.accuracy import page

    found = answer().to_dict()
    if path is not None:
        write_text(path, page(found))
    if as_json:
        emit(found, as_json=True, keep=False)
    else:
        put(page(found) if path is None else f"{path}\n")
