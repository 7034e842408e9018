"""DataStates-LLM's figures beside ours: pinned, and the misses known."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.derived.datastates_llm import ADAPTERS_GB_S, BLOCKING_GB_S, DERIVATION, RUNS, _step

GAINS = [1.846, 1.052, 3.117, 1.311, 4.498]
SIZES_GB = [45.32, 83.30, 165.7, 443.7, 1064.4, 10.35, 0.6471, 13.86, 0.8665]


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(DERIVATION.figures())


def test_figures(found: list[Figure]) -> None:
    assert [each.ours for each in found[:5]] == pytest.approx(GAINS, rel=1e-3)
    assert [each.ours for each in found[5:]] == pytest.approx(SIZES_GB, rel=1e-3)
    assert {each.tolerance for each in found} == {0.25}


def test_sizes_are_those_of_the_fullest_rank(found: list[Figure]) -> None:
    assert all(abs(each.error) < 0.01 for each in found[5:])


def test_the_fitted_row_is_no_prediction_and_misses_say_why(found: list[Figure]) -> None:
    assert [each.what for each in found if each.kind == "identity"] == [found[4].what]
    missed = [each for each in found if not each.within]
    assert missed == found[:2] and all(each.note for each in missed)


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
    assert DERIVATION.kind == "predicted" and DERIVATION.techniques == ("async-checkpointing",)
    assert all(given.source and given.value for given in DERIVATION.inputs)
