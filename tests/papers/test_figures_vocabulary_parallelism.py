"""Vocabulary parallelism's table beside ours: pinned, and no miss without its reason."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.reproduce import figures
from gnomon.papers.source import reproduction

pytestmark = pytest.mark.slow

GIVEN = reproduction("vocabulary-parallelism")
BASELINE_MFU = [50.08, 43.29, 34.54, 25.54, 53.79, 46.89, 37.76, 28.10]
VOCAB_1_GB = [15.64, 16.15, 17.18, 19.24, 23.25, 23.86, 25.08, 27.52]
ANEW_MFU = [50.08, 51.13, 53.07, 38.27, 54.20, 56.11, 43.24]
OUTLIER = "2k tokens, 256k words, baseline"


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(figures("vocabulary-parallelism"))


def of(found: list[Figure], end: str) -> list[float]:
    return [each.ours for each in found if each.what.endswith(end)]


def test_figures(found: list[Figure]) -> None:
    assert [each.ours for each in found[:2]] == pytest.approx([2.137, 2.205], rel=1e-3)
    assert of(found, "baseline: MFU") == pytest.approx(BASELINE_MFU, rel=1e-3)
    assert of(found, "vocab-1: memory") == pytest.approx(VOCAB_1_GB, rel=1e-3)


def test_memory_and_the_baseline_are_within_but_for_one_row(found: list[Figure]) -> None:
    rows = [each for each in found if each.what.endswith("memory") or each.what.endswith("baseline: MFU")]
    assert len(rows) == 32
    assert all(each.within for each in rows if not each.what.startswith(OUTLIER))


def test_layers_shared_out_anew(found: list[Figure]) -> None:
    rows = [each for each in found if each.what.endswith("anew: MFU")]
    assert [each.ours for each in rows] == pytest.approx(ANEW_MFU, rel=1e-3)
    assert all(each.within for each in rows if "128k" not in each.what)
    gains = [each for each in found if "gain of vocab-1 over layers" in each.what]
    assert [each.ours for each in gains] == pytest.approx([1.080, 1.471], rel=1e-3)
    assert [each.claimed for each in gains] == pytest.approx([1.073, 1.354], rel=1e-3)


def test_misses_say_why(found: list[Figure]) -> None:
    assert found[0].within and "4k" in found[0].what
    assert len(found) == 65
    assert all(each.note for each in found if not each.within)
    points = [each.tolerance * each.claimed for each in found if each.what.endswith("MFU")]
    assert points == pytest.approx([3.0] * 31)


def test_kinds_and_sources() -> None:
    assert GIVEN.kind == "predicted" and reproduction("vocabulary-parallelism").techniques == ("vocabulary-parallel",)
