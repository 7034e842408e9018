"""docs/papers.md shows the shelves, and the re-derived figures as they come out now."""

from __future__ import annotations

from tests.golden.papers_page import PAGE, page


def test_the_page_is_what_is_computed() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make papers`"
