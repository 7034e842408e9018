"""No number changes unnoticed: today's predictions are those written down.

When a change is meant, run `python -m tests.golden.update` and commit what it writes.
"""

from __future__ import annotations

import json

import pytest
from tests.golden.update import FILE, today

TOLERANCE = 1e-6


def test_predictions_are_those_written_down() -> None:
    written: dict[str, float] = json.loads(FILE.read_text())
    found = today()
    assert list(found) == list(written)
    changed = {
        name: f"{written[name]:.6g} -> {value:.6g} s ({value / written[name] - 1:+.2%})"
        for name, value in found.items()
        if value != pytest.approx(written[name], rel=TOLERANCE, abs=0)
    }
    assert not changed, f"{len(changed)} of {len(found)} changed; see this file's first lines"
