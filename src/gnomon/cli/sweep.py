"""`gnomon sweep`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.pages import FLAG, PageAsked, outputs, page

File = Annotated[str, typer.Argument(metavar="FILE.yaml", help="The command, its fixed values, and lists of others.")]
Out = Annotated[
    str, typer.Option("--out", metavar="FILE", help="Output: .jsonl, one answer per line, or .parquet, a table.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        parser=flags.whole("--jobs", most=1024),
        metavar="N",
        help="Parallel workers: processes of this machine, or of --ray.",
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        parser=flags.word("--ray"),
        metavar="ADDRESS",
        help="Run on a Ray cluster, such as auto or ray://head:10001; local starts Ray here. Needs gnomon[ray].",
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        "--shard",
        parser=flags.word("--shard"),
        metavar="I/N",
        help="Only shard I of N, for job arrays.",
    ),
]
Join = Annotated[
    list[str] | None,
    typer.Option("--join", metavar="FILE.jsonl", help="The file of a finished shard; repeat for all shards."),
]


def add(app: typer.Typer) -> None:
    app.command("sweep", cls=PageAsked)(sweep)


def sweep(
    file: File,
    out: Out,
    jobs: Jobs = None,
    ray: Ray = None,
    shard: Shard = None,
    join: Join = None,
    html: flags.Html = None,
    as_json: flags.Json = False,
) -> None:
    """Any question over lists of values, one answer per line.

    A stopped sweep resumes where it stopped when the same command is repeated, and asks again what ended in a fault of
    Gnomon (exit code 3).
    """
    from gnomon.api.sweep import sweep as answer
    from gnomon.cli.output import emit, fail, say
    from gnomon.cli.progress import Progress
    from gnomon.errors import FAULT

    sources = {"the sweep": file} | {f"--join {one}": one for one in join or ()}
    paths = outputs({"--out": out, FLAG: html}, sources)
    rows = paths["--out"].with_suffix(".jsonl")
    for written in (rows, rows.with_name(f"{rows.name}.sweep")):  # beside a table, its rows; and whose rows they are
        outputs({"--out": str(written), FLAG: html}, sources)
    try:
        with Progress("sweep") as tick:
            result = answer(
                file,
                out=paths["--out"],
                jobs=jobs,
                ray=ray or "",
                shard=shard or "",
                join=join or (),
                progress=lambda done, total: tick(done, total, f"{done:,} of {total:,}"),
            )
    except KeyboardInterrupt:
        say(f"stopped; the answers so far are kept, and the same command resumes: {out}")
        raise
    if result.found == result.questions and not join:
        say(f"nothing to do: all {result.questions:,} answers are in the file")
    elif result.found and not join:
        say(f"{result.found:,} answers were in the file; {result.questions - result.found:,} are new")
    emit(result, as_json=as_json, keep=False, files=page(result, paths))
    if result.faults:
        hint = "The same command asks them again; please report what the lines say."
        message = f"{result.faults:,} of {result.questions:,} questions ended in a fault of Gnomon"
        raise typer.Exit(fail(message, where=result.out, hint=hint, code=FAULT))
