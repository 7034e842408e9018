"""Sequence parallelism's figures beside ours: pinned, and no miss without its reason."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.reproduce import figures
from gnomon.papers.source import reproduction

pytestmark = pytest.mark.slow

GIVEN = reproduction("sequence-parallelism")
OURS = [1.211, 9.026, 3.451, 1.538, 32.0, 16.0, 24.02, 0.8333]
KINDS = ["predicted"] * 4 + ["identity"] * 2 + ["predicted"] * 2


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(figures("sequence-parallelism"))


def test_figures(found: list[Figure]) -> None:
    assert [each.ours for each in found] == pytest.approx(OURS, rel=1e-3)
    assert [each.kind for each in found] == KINDS
    assert [each.tolerance for each in found if each.kind == "predicted"] == [0.08] + [0.2] * 3 + [0.1] * 2


def test_misses_say_why(found: list[Figure]) -> None:
    assert all(each.note for each in found if not each.within)


def test_what_was_not_read_is_said() -> None:
    assert GIVEN.kind == "predicted"
    assert sum("recalled" in given.source for given in GIVEN.inputs) == 2
