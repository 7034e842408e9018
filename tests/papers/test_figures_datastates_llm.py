"""DataStates-LLM's figures beside ours: pinned, and no miss without its reason."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.index.datastates_llm.figures import ADAPTERS_GB_S, BLOCKING_GB_S, RUNS, _gain, _step
from gnomon.papers.reproduce import figures
from gnomon.papers.source import reproduction

pytestmark = pytest.mark.slow

GIVEN = reproduction("datastates-llm")
GAINS = [1.846, 1.052, 3.117, 1.311]
SIZES_GB = [45.32, 83.30, 165.7, 443.7, 1064.4, 10.35, 0.6471, 13.86, 0.8665]


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(figures("datastates-llm"))


def test_figures(found: list[Figure]) -> None:
    assert [each.ours for each in found[:4]] == pytest.approx(GAINS, rel=1e-3)
    assert [each.ours for each in found[4:]] == pytest.approx(SIZES_GB, rel=1e-3)
    assert {each.tolerance for each in found[:4]} == {0.25}


def test_sizes_are_parameters_times_bytes_and_so_identities(found: list[Figure]) -> None:
    assert all(abs(each.error) < 0.01 and each.kind == "identity" for each in found[4:])
    assert {each.kind for each in found[:4]} == {"predicted"}


def test_the_pace_is_solved_from_the_largest_gain_which_is_no_figure(found: list[Figure]) -> None:
    assert max(map(_gain, RUNS)) == _gain("3B") == pytest.approx(4.5, rel=2e-3)
    assert not any(each.claimed == 4.5 for each in found)
    assert all(each.note for each in found if not each.within)


def test_no_copy_waits_for_the_checkpoint_before_it() -> None:
    """Two have no room in the 64 GB of a node, and need none: one is written long before the next."""
    for name in RUNS:
        found = _step(name, 1, "lazy")
        assert 32e9 < found.step.host_bytes < 64e9
        assert found.step.host_bytes / (ADAPTERS_GB_S * 1e9) < found.step_time_s.value
    thirty = _step("30B", 1, "lazy")
    assert thirty.step.host_bytes / (BLOCKING_GB_S * 1e9) == pytest.approx(7.81, rel=1e-2)
    assert thirty.step_time_s.value == pytest.approx(9.89, rel=1e-2)


def test_sources() -> None:
    assert GIVEN.kind == "predicted" and GIVEN.techniques == ("async-checkpointing",)
