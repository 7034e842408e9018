"""Runs the commands that README.md and the guides show: `python -m tests.golden.pages` writes their output again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/serving.md", "docs/training.md", "docs/papers-guide.md", "docs/techniques.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INPUTS = ("examples", "measurements")
"""Folders of the checkout that commands on the pages read."""


def commands_of(block: str) -> list[str]:
    return [line[2:] for line in block.split("\n") if line.startswith("$ ")]


def output_of(command: str, folder: Path) -> str:
    """Its stdout, in a folder whose `home` is Gnomon's own, so that `last` is the command before."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "GNOMON_HOME": str(folder / "home"), "COLUMNS": "200"}
    environment |= {"GNOMON_QUIET": "1"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout, f"{command}: {done.stderr}"
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").split("\n"))


def refreshed(text: str) -> str:
    """The page with the output of every command as it is now; its commands share a folder and a history."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for inner in INPUTS:
            (folder / inner).symlink_to(ROOT / inner)

        def run(block: re.Match[str]) -> str:
            shown = [f"$ {command}\n{output_of(command, folder)}" for command in commands_of(block[1])]
            return "```console\n" + "\n\n".join(shown) + "\n```"

        return BLOCK.sub(run, text)


if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(refreshed((ROOT / page).read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{page} written")
