"""`gnomon export`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("export")(export)


def export(
    plan: flags.PlanRef,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="vllm or kubernetes.")] = "vllm",
    out: Annotated[str | None, typer.Option("--out", metavar="DIR", help="Write the files into this folder.")] = None,
    as_json: flags.Json = False,
) -> None:
    """A plan as the files that start it. Without --out the first file is printed."""
    from gnomon.api.export import export as answer
    from gnomon.cli.files import output_folder, write_all
    from gnomon.cli.output import emit, put, say
    from gnomon.errors import named_by
    from gnomon.export import target

    with named_by("--to"):
        target(to)
    result = answer(plan, to=to)
    names = list(result.files)
    if out is not None:
        folder = output_folder(out, "--out")
        write_all(dict(result.files), folder)
    if as_json:
        emit(result.to_dict(), as_json=True, keep=False)
        return
    for line in result.not_expressed:
        say(f"left to you: {line}")
    if out is None:
        put(result.files[names[0]])
        say(f"--out DIR writes {' and '.join(names)}")
    else:
        put("".join(f"{folder / name}\n" for name in names))
