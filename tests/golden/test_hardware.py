"""docs/hardware.md shows the catalog as it is."""

from __future__ import annotations

from tests.golden.hardware import PAGE, page


def test_the_page_is_the_catalog() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make hardware`"
