"""`gnomon completion`, and what the shell asks while a command is typed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

SHELLS = ("bash", "zsh", "fish")


def add(app: typer.Typer) -> None:
    app.command("completion")(completion)


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"One of {', '.join(SHELLS)}.")],
) -> None:
    """Shell completion of names and flags.

    Prints the script: put eval "$(gnomon completion bash)" into your shell's startup file.
    """
    from gnomon.errors import unknown_name

    if shell not in SHELLS:
        raise unknown_name("shell", shell, SHELLS)
    answer(f"source_{shell}", [])


def answer(instruction: str, typed: list[str]) -> int:
    """What the shell asked for, on stdout; only the command it has typed is built."""
    from typer import completion as typers

    from gnomon.cli.app import build
    from gnomon.cli.run import COMPLETE

    command = typer.main.get_command(build(typed))
    ready: Any = getattr(typers, "completion_init", None)  # older versions of typer have to be asked
    if ready is not None:
        ready()
    return int(typers.shell_complete(command, {}, "gnomon", COMPLETE, instruction))
