"""`gnomon launch`"""

from __future__ import annotations

import typer

from gnomon.cli import flags
from gnomon.cli.generate import asks
from gnomon.spec.questions.running import LaunchQuestion


def add(app: typer.Typer) -> None:
    app.command("launch")(asks(LaunchQuestion)(launch))


def launch(question: LaunchQuestion, as_json: flags.Json = False) -> None:
    """Start a plan on this machine's GPUs. Exit code 1 where it cannot be started; the answer says why."""
    from gnomon.api.launch import answer
    from gnomon.cli.output import emit, say
    from gnomon.errors import named_by

    with named_by("PLAN"):
        result = answer(question, lambda command: say(f"starting: {command}"))
    if as_json or not result.started:
        emit(result, as_json=as_json, keep=False)
    code = result.exit_code or 0
    raise typer.Exit(code if result.started or question.dry_run else 1)
