"""docs/cli.md and docs/api.md are the commands and functions as they are."""

from __future__ import annotations

import pytest
from tests.golden.references import DOCS, PAGES

import gnomon


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `make references`"


def test_every_public_function_is_in_the_reference() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    told = [name for name in gnomon.__all__ if f"gnomon.{name}" in text or name in ("GnomonError", "__version__")]
    assert told == gnomon.__all__
