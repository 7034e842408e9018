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
    force: Annotated[
        bool, typer.Option("--force", help="With --dry-run: show a plan that would not run all the same.")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """Start a plan on this machine's GPUs. Exit code 1 where it cannot be started; the answer says why."""
    from gnomon.api.launch import launch as answer
    from gnomon.cli.output import emit, say
    from gnomon.errors import named_by

    with named_by("PLAN"):
        result = answer(plan, dry_run=dry_run, force=force, tell=lambda command: say(f"starting: {command}"))
    if as_json or not result.started:
        emit(result, as_json=as_json, keep=False)
    code = result.exit_code or 0
    raise typer.Exit(code if result.started or dry_run else 1)
