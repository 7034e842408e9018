"""ZeRO-Offload's figures beside ours: pinned, and no miss without its reason."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.index.zero_offload.figures import _step
from gnomon.papers.reproduce import figures
from gnomon.papers.source import reproduction

pytestmark = pytest.mark.slow

GIVEN = reproduction("zero-offload")
OURS = [14.11, 1.465, 9.630, 92.24, 3.879, 50.43, 52.05]


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(figures("zero-offload"))


def test_figures(found: list[Figure]) -> None:
    assert [each.ours for each in found] == pytest.approx(OURS, rel=1e-3)
    assert [each.tolerance for each in found] == [0.1] * 5 + [0.12] * 2
    assert {each.kind for each in found} == {GIVEN.kind} == {"predicted"}


def test_the_headline_is_within_and_misses_say_why(found: list[Figure]) -> None:
    assert found[0].within
    assert all(each.note for each in found if not each.within)


@pytest.mark.parametrize(
    ("shape", "reached"),
    [((40, 1536, 16, 8), 45.4), ((24, 2048, 16, 1), 30.6)],
    ids=["Megatron-LM 2019", "one sequence"],
)
def test_what_the_notes_compare_with(shape: tuple[int, int, int, int], reached: float) -> None:
    found = _step(*shape)
    assert found.step.flops["model"] / found.step_time_s.value / 1e12 == pytest.approx(reached, rel=5e-3)


def test_sources() -> None:
    assert sum("recalled" in given.source for given in GIVEN.inputs) == 1
