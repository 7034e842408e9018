"""docs/papers.md shows the index, and the re-derived figures as they come out now."""

from __future__ import annotations

import pytest
from tests.golden.papers_page import PAGE, counts, page

import gnomon
from gnomon.papers.build import stored_counts
from gnomon.papers.entries import papers, rederived


def test_the_readme_says_how_many_are_re_derived() -> None:
    text = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    count = len(rederived())
    assert f"[{len(papers())} papers](docs/papers.md) found by words. {count} are re-derived" in text
    assert f"computes again the {count} that are re-derived" in text


@pytest.mark.slow
def test_the_page_and_the_counts_are_what_is_computed() -> None:
    found = gnomon.papers.run().to_dict()
    stored = {slug: known for slug, known in stored_counts().items() if known}
    assert stored == counts(found), "run `make papers`"
    assert PAGE.read_text(encoding="utf-8") == page(found), "run `make papers`"
