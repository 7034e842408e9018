"""docs/papers.md shows the index, and the re-derived figures as they come out now."""

from __future__ import annotations

import pytest
from tests.golden.papers_page import PAGE, counts, page

import gnomon
from gnomon.papers.build import stored_counts
from gnomon.papers.entries import papers, reproduced


def test_the_readme_says_how_many_are_computed_and_run() -> None:
    text = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    known, computed = papers(), reproduced()
    ran = [entry for entry in gnomon.papers(status="executed").to_dict()["papers"] if entry["slug"] in computed]
    said = f"of {len(known)} in the index, Gnomon computes the figures of {len(computed)}"
    assert said in text
    assert f"{len(ran)} of which it has also run on a GPU" in text
    assert f"The other {len(known) - len(computed)} are entries to search" in text
    holds = [known["holds"] for known in stored_counts().values() if known]
    within, figures = (sum(one[name] for one in holds) for name in ("within", "figures"))
    assert f"{within} of their {figures} predicted figures came out within tolerance" in text


@pytest.mark.slow
def test_the_page_and_the_counts_are_what_is_computed() -> None:
    found = gnomon.papers.run().to_dict()
    stored = {slug: known for slug, known in stored_counts().items() if known}
    assert stored == counts(found), "run `make papers`"
    assert PAGE.read_text(encoding="utf-8") == page(found), "run `make papers`"
