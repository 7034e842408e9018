"""What README.md and the guides show is what the commands print."""

from __future__ import annotations

import pytest
from tests.golden.pages import BLOCK, PAGES, ROOT, commands_of, refreshed

MOST_LINES = 150
"""Of README.md; what is longer belongs in docs/."""
STEPS = {
    "README.md": ("plan serve", "predict", "plan train", "accuracy"),
    "docs/serving.md": (
        "predict",
        "fit",
        "simulate serve",
        "plan serve",
        "explain",
        "export",
        "verify",
        "import",
        "tune",
    ),
    "docs/training.md": ("predict", "simulate train", "plan train", "explain", "export", "import", "verify", "try"),
    "docs/techniques.md": ("predict", "fit"),
    "docs/papers-guide.md": ("papers search", "papers show", "papers run", "try", "techniques", "lab"),
}
"""Commands that a page has to show."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_real_output(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert refreshed(text) == text, "run `make golden`"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_its_commands(page: str) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    shown = [command for block in blocks for command in commands_of(block)]
    assert [step for step in STEPS[page] if not any(f"gnomon {step}" in command for command in shown)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < MOST_LINES
