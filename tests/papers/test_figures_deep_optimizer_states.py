"""Deep Optimizer States' logs beside ours: pinned, and no miss without its reason."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.index.deep_optimizer_states.figures import _phases
from gnomon.papers.reproduce import figures
from gnomon.papers.source import reproduction

pytestmark = pytest.mark.slow

GIVEN = reproduction("deep-optimizer-states")
UPDATES = [387.0, 1110.0, 617.5, 1204.0, 642.8, 1373.0, 758.1, 1858.0, 1017.0, 2743.0, 1463.0]
FORWARDS = [109.1, 238.0, 167.6, 146.4, 199.2, 343.3]


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(figures("deep-optimizer-states"))


def test_headline_and_stride(found: list[Figure]) -> None:
    assert [each.ours for each in found[:5]] == pytest.approx([2.658, 2.780, 2.703, 1.241, 2], rel=1e-3)
    assert {each.kind for each in found} == {"predicted"}


def test_updates_and_passes(found: list[Figure]) -> None:
    updates = [each for each in found if each.what.endswith(": update")]
    assert [each.ours for each in updates] == pytest.approx(UPDATES, rel=1e-3)
    assert all(each.within for each in updates)
    forwards = [each.ours for each in found if each.what.endswith("baseline: forward")]
    assert forwards == pytest.approx(FORWARDS, rel=1e-3)


def test_what_a_pace_is_solved_from_is_no_figure_and_no_number_stands_twice(found: list[Figure]) -> None:
    names = {each.what for each in found}
    assert "7B, 80% on the host, baseline: update" not in names
    assert not any(what.endswith("flush beside: update") for what in names)
    assert _phases("7B", "H100", 0.8, "flush=waits")[2] == pytest.approx(714.0, rel=0.02)


def test_misses_say_why(found: list[Figure]) -> None:
    assert all(each.within or each.note for each in found)
    assert {each.tolerance for each in found} == {0.12}


def test_kinds_and_sources() -> None:
    assert GIVEN.kind == "predicted" and reproduction("deep-optimizer-states").techniques == ("offload-optimizer",)
