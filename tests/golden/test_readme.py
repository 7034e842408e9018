"""What README.md shows is what the commands print."""

from __future__ import annotations

import pytest
from tests.golden.readme import BLOCK, README, refreshed, without_timing


@pytest.mark.slow
def test_readme_shows_real_output() -> None:
    text = README.read_text()
    assert len(BLOCK.findall(text)) >= 4
    assert without_timing(refreshed(text)) == without_timing(text), "run `make golden`"
