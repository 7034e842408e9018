"""What CONTRIBUTING.md tells someone who adds a paper works as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.papers.shelved import Shelved

from gnomon.papers import shelf
from gnomon.papers.answers import run

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def block(language: str) -> str:
    section = PAGE.read_text(encoding="utf-8").partition("## Add a paper")[2]
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_entry(tmp_path: Path) -> None:
    (tmp_path / "kind.yaml").write_text(block("yaml"))
    (entry,) = shelf.read(tmp_path)
    assert (entry.slug, entry.status, entry.claims[0].value) == ("a-paper", "listed", "2.5x quicker")


def test_the_derivation(own: Shelved) -> None:
    own.derive("gptq", block("python"))
    ((claim,),) = (result.claims for result in run("gptq").results)
    assert claim["within"]
    assert (claim["ours"], claim["unit"]) == (pytest.approx(2 * 2 * 96 * 12288 * 2048 / 1024**3), "GiB")
    assert shelf.paper("gptq").status == claim["kind"] == "identity" and "Decode speeds" in shelf.paper("gptq").why
