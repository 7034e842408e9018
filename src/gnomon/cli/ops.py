"""`gnomon ops`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("ops")(ops)


def ops(
    source: Annotated[str, typer.Argument(metavar="FILE.csv", help="One operator a line.")],
    on: Annotated[str, typer.Option("--on", metavar="CHIP", help="The chip.")],
    out: Annotated[str | None, typer.Option("--out", metavar="FILE.csv", help="Write the table here.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Times of single operators, added to a table of them."""
    from gnomon.cli.files import output_file, written
    from gnomon.cli.output import print_json, say, write_table

    path = output_file(out, "--out") if out is not None else None
    from gnomon.api.ops import ops as answer

    rows = answer(source, on=on)
    if path is not None:
        with written(path) as file:
            write_table(rows, file)
        say(f"wrote {len(rows):,} rows to {path}")
    if as_json:
        print_json({"schema": "gnomon.ops/1", "rows": rows})
    elif path is None:
        import sys

        write_table(rows, sys.stdout)
