"""`gnomon launch`"""

from __future__ import annotations

from typing import Annotated

import typer

from gnomon.cli import flags


def add(app: typer.Typer) -> None:
    app.command("launch")(launch)


def launch(
    plan: flags.PlanRef,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be started, and start nothing.")] = False,
    as_json: flags.Json = False,
) -> None:
    """Start a plan on this machine's GPUs. Exit code 1 where it cannot be started; the answer says why."""
    from gnomon.api.launch import launch as answer
    from gnomon.cli.output import emit, say

    result = answer(plan, dry_run=dry_run, tell=lambda command: say(f"starting: {command}"))
    if as_json or not result.started:
        emit(result.to_dict(), as_json=as_json, keep=False)
    code = result.exit_code or 0
    raise typer.Exit(code if result.started or dry_run else 1)
