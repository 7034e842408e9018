"""`gnomon import`"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.spec.questions.imported import ImportQuestion


def add(app: typer.Typer) -> None:
    app.command("import")(asks(ImportQuestion)(import_plan))


def import_plan(
    question: ImportQuestion,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE.yaml", help="Write the plan to this file.")] = None,
    as_json: flags.Json = False,
) -> None:
    """A running deployment's command or files as a plan.

    Nothing of it is run; every option acts, is listed with the reason why it does not, or is refused.
    """
    from gnomon.api.imported import answer
    from gnomon.cli.files import keep_apart, output_files
    from gnomon.cli.output import emit
    from gnomon.load.plan import write_plan

    paths = output_files({"--out": out})
    keep_apart(paths, str(question.source) if "\n" not in str(question.source) else None, "the command")
    result = answer(question)
    emit(result, as_json=as_json, files=[partial(write_plan, result.plan, path) for path in paths.values()])
