"""docs/papers.md and the pages of docs/papers show the index, and the figures as they come out now."""

from __future__ import annotations

import re
from statistics import median

import pytest
from tests.golden.cluster_pages import FOLDER, pages
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
    counts = [known for known in stored_counts().values() if known]
    checked, within, left = (sum(one["headline"][name] for one in counts) for name in ("checked", "within", "left_out"))
    assert f"Of the claims of their abstracts {checked} are checked, {within} of them within tolerance" in text
    assert f"and {left} are left out" in text
    errors = [one["median_error"] for one in counts if one["median_error"] is not None]
    assert f"the median error of a paper is {median(errors):.0%}" in text


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
