"""`gnomon ops`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.spec.questions.step import OpsQuestion


def add(app: typer.Typer) -> None:
    app.command("ops")(asks(OpsQuestion)(ops))


def ops(
    question: OpsQuestion,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE.csv", help="Write the table here.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Times of single operators, added to a table of them."""
    from gnomon.cli.files import keep_apart, output_files
    from gnomon.cli.output import fail, print_json, put, say
    from gnomon.paths import unwritten

    paths = output_files({"--out": out})
    keep_apart(paths, str(question.source), "the operators")
    path = paths.get("--out")
    from gnomon.api.ops import answer
    from gnomon.load.operators import csv_text as table

    rows = answer(question)
    problem = unwritten(path, table(rows)) if path is not None else None
    if path is not None and problem is None:
        say(f"wrote {len(rows):,} rows to {path}")
    if as_json:
        print_json({"schema": "gnomon.ops/1", "rows": rows})
    elif path is None or problem is not None:
        put(table(rows))
    if problem is not None:
        raise typer.Exit(fail(problem.message, where=problem.where, hint="The table is on standard output."))
