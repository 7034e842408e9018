"""docs/papers.md and the pages of docs/papers show the index, and the figures as they come out now."""

from __future__ import annotations

import re

import pytest
from tests.golden.cluster_pages import FOLDER, pages
from tests.golden.papers_page import PAGE, README, counts, page, readme_words

import gnomon
from gnomon.papers.build import stored_counts


def test_the_readme_says_how_many_are_computed_and_run() -> None:
    assert readme_words() in README.read_text(encoding="utf-8").split("\n"), "run `make papers`"


@pytest.mark.slow
def test_the_page_and_the_counts_are_what_is_computed() -> None:
    found = gnomon.papers.run().to_dict()
    stored = {slug: known for slug, known in stored_counts().items() if known}
    assert stored == counts(found), "run `make papers`"
    assert PAGE.read_text(encoding="utf-8") == page(found), "run `make papers`"
    written = pages(found)
    assert {path.name for path in FOLDER.iterdir()} == written.keys(), "run `make papers`"
    for name, text in written.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name}: run `make papers`"


def test_links_of_cluster_pages_lead_somewhere() -> None:
    anchors = set(re.findall(r"^#+ (\S+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    for path in FOLDER.glob("*.md"):
        for target, anchor in re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", path.read_text(encoding="utf-8")):
            assert (FOLDER / target).resolve().exists(), f"{path.name}: {target}"
            assert not anchor or anchor in anchors, f"{path.name}: {target}#{anchor}"
