"""Every flag of every command, a line each: `python -m tests.contract.flags` writes them down again.

Scripts rely on them: a line may be added, and one that goes needs an alias and a line in the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from gnomon.cli.app import build

FILE = Path(__file__).with_name("flags.txt")


def flags() -> list[str]:
    return sorted(_of(typer.main.get_command(build([])), ()))


def _of(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _of(inner, (*path, name))
    for param in command.params:
        names = (
            sorted((*param.opts, *param.secondary_opts)) if param.param_type_name == "option" else [param.name.upper()]
        )
        yield " ".join(("gnomon", *path, "/".join(names)))


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in flags()))
