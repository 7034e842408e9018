"""Commands keep their flags."""

from __future__ import annotations

from tests.contract.flags import FILE, flags


def test_the_list_of_flags_is_kept() -> None:
    assert flags() == FILE.read_text().splitlines(), "python -m tests.contract.flags writes the list again"
