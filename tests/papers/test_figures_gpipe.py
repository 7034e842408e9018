"""GPipe's tables beside ours: every figure pinned, and no miss without its reason."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.reproduce import figures
from gnomon.papers.source import reproduction

pytestmark = pytest.mark.slow

GIVEN = reproduction("gpipe")


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(figures("gpipe"))


def of(found: list[Figure], start: str) -> list[float]:
    return [each.ours for each in found if each.what.startswith(start)]


def test_memory(found: list[Figure]) -> None:
    assert of(found, "Table 1, most") == [13, 118, 478, 1918, 0]
    assert of(found, "Table 1, parameters") == pytest.approx([8.781, 59.43, 235.0, 937.4, 3.153], rel=1e-3)
    assert of(found, "Table 1, activations") == pytest.approx([6.787, 49.0, 195.2, 780.2, 66.69], rel=1e-3)


@pytest.mark.parametrize(("stages", "micros"), [(4, 1), (8, 1), *((k, m) for k in (2, 4, 8) for m in (4, 32))])
def test_an_even_pipeline_is_its_bubble(found: list[Figure], stages: int, micros: int) -> None:
    what = f"Table 2, Transformer-48, {stages} stages, {micros} micro-batches"
    assert of(found, what) == pytest.approx([stages * micros / (micros + stages - 1)])


def test_misses_say_why(found: list[Figure]) -> None:
    assert all(bool(each.note) is not each.within for each in found)
    assert {each.tolerance for each in found if each.kind == "predicted"} == {0.1}


def test_kinds_and_sources(found: list[Figure]) -> None:
    assert "8 stages, 32" in found[0].what and found[0].within
    assert GIVEN.kind == "predicted" and GIVEN.techniques == ("gpipe",)
    assert all((each.kind == "identity") == ("parameters" in each.what) for each in found)
    assert not any(each.claimed == 1 or "AmoebaNet" in each.what for each in found)
