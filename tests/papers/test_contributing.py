"""What CONTRIBUTING.md tells someone who adds a paper works as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
from tests.papers.own_index import OwnIndex

from gnomon.cli.run import run as program
from gnomon.papers.answers import run
from gnomon.papers.entries import paper

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def blocks(language: str) -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## Add a paper")[2]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def test_the_entry(own: OwnIndex) -> None:
    """The command that begins one writes an entry that the index takes."""
    (command,) = re.findall(r"`gnomon (papers new [^`]*)`", PAGE.read_text(encoding="utf-8"))
    assert program(command.replace("src/gnomon/papers/index", str(own.folder)).split()) == 0
    own.build()
    entry = paper("a-paper")
    assert (entry.slug, entry.status, entry.arxiv, entry.date) == ("a-paper", "listed", "2612.01234", "2026-12")


def test_the_figures(own: OwnIndex) -> None:
    reproduction = dedent(blocks("yaml")[0].removeprefix("reproduction:\n"))
    (figures,) = blocks("python")
    own.reproduce("gptq", reproduction, figures)
    ((claim,),) = (result.claims for result in run("gptq").results)
    assert claim["within"]
    assert (claim["ours"], claim["unit"]) == (pytest.approx(2 * 2 * 96 * 12288 * 2048 / 1024**3), "GiB")
    assert paper("gptq").status == claim["kind"] == "identity" and "Decode speeds" in paper("gptq").why
