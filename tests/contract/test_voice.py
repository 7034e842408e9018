"""Messages, docs and names speak as vLLM's, PyTorch's and Megatron-LM's do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.contract.voice import NAMES, PHRASES, ROOT, in_code, phrases, prose

FROM_CODE = {"accuracy.md", "api.md", "cli.md", "papers.md"}
"""Pages whose words are those of the code and its data."""
PAGES = [
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in FROM_CODE),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")),
]
NAMES_LEFT: dict[str, int] = {
    "shelf": 9,
    "why_not": 6,
}
PHRASES_LEFT: dict[str, int] = {
    "shelf": 9,
}
"""How often words that are on their way out still stand in the code: a number may fall, and none may be added."""

SAID = {
    "lent": "products are lent from an A100",
    "products": "sums of matrix products",
    "quicker": "1.04x as quick as before",
    "a second": "at 12 requests a second",
    "bands hold": "the 90% bands hold 33 of 33",
    "in the middle": "off by 3.1% in the middle",
    "thousand million": "of 1 to 70 thousand million parameters",
    "whole experts": "Ranks that whole experts are spread over",
}
"""Sentences that were said once."""
FINE = (
    "the whole run, again, in other words",
    "a prompt that is not a number; a step of 8 sequences",
    "a product of two primes, and what the bytes a rank holds are",
    "as quickly as it can, a chip that looks at its cache",
)
"""Plain English."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_speaks_the_language_of_the_trade(page: Path) -> None:
    found = phrases(prose(page.read_text(encoding="utf-8")))
    assert {name: PHRASES[name][1] for name in found} == {}


def test_words_on_their_way_out_do_not_spread() -> None:
    names, said = in_code()
    more = {name: count for name, count in names.items() if count > NAMES_LEFT.get(name, 0)}
    assert {name: (count, NAMES[name][1]) for name, count in more.items()} == {}
    more = {name: count for name, count in said.items() if count > PHRASES_LEFT.get(name, 0)}
    assert {name: (count, PHRASES[name][1]) for name, count in more.items()} == {}


def test_what_is_left_is_named_as_it_is_looked_for() -> None:
    assert NAMES_LEFT.keys() <= NAMES.keys()
    assert PHRASES_LEFT.keys() <= PHRASES.keys()


@pytest.mark.parametrize("name", SAID)
def test_phrases_are_found(name: str) -> None:
    assert phrases(SAID[name])[name] == 1


@pytest.mark.parametrize("text", FINE)
def test_plain_english_is_fine(text: str) -> None:
    assert not phrases(text)


@pytest.mark.parametrize(
    ("identifier", "name"),
    [("lending", "lent"), ("Wire", "Wire"), ("pace_of", "pace"), ("LENDS", "lent"), ("QUICK", "BRINK")],
)
def test_names_are_found(identifier: str, name: str) -> None:
    assert re.search(NAMES[name][0], identifier)


@pytest.mark.parametrize("identifier", ["silent", "space", "units", "workspace", "talent", "landing", "THINKING"])
def test_other_names_are_fine(identifier: str) -> None:
    assert not [name for name, (pattern, _) in NAMES.items() if re.search(pattern, identifier)]
