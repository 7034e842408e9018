"""What CONTRIBUTING.md tells someone who adds a paper works as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
from tests.papers.own_index import OwnIndex

from gnomon.papers.answers import run
from gnomon.papers.entries import paper

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def blocks(language: str) -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## Add a paper")[2]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def test_the_entry(own: OwnIndex) -> None:
    own.write("a-paper", "paper.yaml", blocks("yaml")[0])
    own.build()
    entry = paper("a-paper")
    assert (entry.slug, entry.status, entry.claims[0].value) == ("a-paper", "listed", "2.5x faster")


def test_the_figures(own: OwnIndex) -> None:
    reproduction = dedent(blocks("yaml")[1].removeprefix("reproduction:\n"))
    (figures,) = blocks("python")
    own.reproduce("gptq", reproduction, figures)
    ((claim,),) = (result.claims for result in run("gptq").results)
    assert claim["within"]
    assert (claim["ours"], claim["unit"]) == (pytest.approx(2 * 2 * 96 * 12288 * 2048 / 1024**3), "GiB")
    assert paper("gptq").status == claim["kind"] == "identity" and "Decode speeds" in paper("gptq").why
