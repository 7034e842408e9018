"""`gnomon export`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.spec.questions.plans import ExportQuestion


def add(app: typer.Typer) -> None:
    app.command("export")(asks(ExportQuestion)(export))


def export(
    question: ExportQuestion,
    out: Annotated[str | None, typer.Option("--out", metavar="DIR", help="Write the files into this folder.")] = None,
    as_json: flags.Json = False,
) -> None:
    """A plan as the files that start it. Without --out the first file is printed.

    A plan that would not run is refused: one that does not fit (exit code 4), or that the chip or the engine refuses.
    """
    from gnomon.api.export import answer
    from gnomon.cli.files import check_overwritten, keep_apart, output_folder, write_all
    from gnomon.cli.output import emit, put, say
    from gnomon.errors import named_by

    with named_by("PLAN"):
        result = answer(question)
    names = list(result.files)
    if out is not None:
        folder = output_folder(out, "--out")
        keep_apart({"--out": folder / "plan.yaml"} if "plan.yaml" in names else {}, str(question.plan), "the plan")
        if not question.force:
            check_overwritten(dict(result.files), folder, "--out")
        write_all(dict(result.files), folder)
    if as_json:
        emit(result, as_json=True, keep=False)
        return
    for line in result.warnings:
        say(f"warning: {line}")
    for line in result.not_expressed:
        say(f"not in these files: {line}")
    if out is None:
        put(f"{result}\n")
        say(f"--out DIR writes {' and '.join(names)}")
    else:
        put("".join(f"{folder / name}\n" for name in names))
