"""The accuracy of training steps that we stand by, and the page that shows it.

When predictions are meant to change, run `make accuracy` and commit the page.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gnomon.api.accuracy import accuracy
from gnomon.report.accuracy import page

PAGE = Path(__file__).parents[2] / "docs/accuracy.md"
LIMITS = {
    ("narayanan-2021-table-1", "step time"): (10, 0.08),
    ("korthikanti-2022-table-5", "step time"): (8, 0.06),
    ("korthikanti-2022-figure-1", "activations"): (8, 0.02),
    ("narayanan-2021-table-2", "step time"): (6, 0.08),
}
"""Rows, and the most their mean error may be."""
MEASURED = {"step time": 0.08, "peak memory": 0.04}
"""The most that any one of our own steps may be off."""
COVERED = 0.8
"""Of all step times, the share that 90% bands must hold: few figures, several of one machine."""


@cache
def answer() -> dict[str, Any]:
    return accuracy().to_dict()


def test_the_page_is_what_the_command_says() -> None:
    assert page(answer()) == PAGE.read_text(encoding="utf-8"), "run `make accuracy`"


@pytest.mark.parametrize(("name", "what"), LIMITS)
def test_published_tables(name: str, what: str) -> None:
    (table,) = [table for table in answer()["published"] if table["name"] == name]
    (found,) = [summary for summary in table["summaries"] if summary["what"] == what]
    rows, limit = LIMITS[name, what]
    assert found["rows"] == rows
    assert found["mean_error"] <= limit


@pytest.mark.parametrize("what", MEASURED)
def test_our_own_steps(what: str) -> None:
    rows = [row for table in answer()["measured"] for row in table["rows"] if row["what"] == what]
    assert len(rows) >= 10
    assert [row for row in rows if abs(row["error"]) > MEASURED[what]] == []


def test_bands_hold_what_was_measured() -> None:
    held = [
        row["inside"]
        for table in (*answer()["published"], *answer()["measured"])
        for row in table["rows"]
        if row["inside"] is not None
    ]
    assert len(held) >= 30
    assert sum(held) >= COVERED * len(held)
