"""Runs the commands that README.md shows: `python -m tests.golden.readme` puts their output in again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TIMING = re.compile(r"(plans in|timed\.) [\d.]+ m?s")


def output_of(command: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "GNOMON_HOME": home, "COLUMNS": "200"}
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
        )
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").split("\n"))


def refreshed(text: str) -> str:
    """The page with the output of every command as it is now."""

    def run(block: re.Match[str]) -> str:
        commands = [line[2:] for line in block[1].split("\n") if line.startswith("$ ")]
        shown = [f"$ {command}\n{output_of(command)}" for command in commands]
        return "```console\n" + "\n\n".join(shown) + "\n```"

    return BLOCK.sub(run, text)


def without_timing(text: str) -> str:
    return TIMING.sub(r"\1 … s", text)


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text()))
