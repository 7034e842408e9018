"""What docs/techniques.md shows is what the commands print."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from gnomon.cli.run import run

PAGE = Path(__file__).parents[2] / "docs" / "techniques.md"


def shown() -> list[tuple[str, str]]:
    """Commands, and the line that stands under each."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [(line[2:], under) for line, under in pairwise(lines) if line.startswith("$ gnomon ")]


@pytest.mark.parametrize(("command", "line"), shown())
def test_the_page_shows_real_output(command: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split(command)[1:]) == 0
    assert line.strip() in capsys.readouterr().out


def test_the_page_names_every_technique() -> None:
    from gnomon.techniques import techniques

    text = PAGE.read_text(encoding="utf-8")
    for one in techniques().values():
        assert f"| `{one.name}` | {', '.join(trial.paper for trial in one.trials)} |" in text
        assert one.work == "training" or all(f"`{parameter.name}" in text for parameter in one.parameters)
