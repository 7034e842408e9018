"""Long contexts at peak and as fitted: every figure pinned, and the misses known."""

from __future__ import annotations

import pytest

from gnomon.papers.base import Figure
from gnomon.papers.derived.long_context_peak import DERIVATION

PEAK = [0.902, 14.17, 8.556, 9.939, 17, 1, 12.29, 1.229, 17.62]
FITTED = [1.349, 27.92, 11.41, 13.24, 8, 0]


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(DERIVATION.figures())


def of(found: list[Figure], kind: str) -> list[float]:
    return [each.ours for each in found if each.kind == kind]


def test_figures(found: list[Figure]) -> None:
    assert of(found, "identity") == pytest.approx(PEAK, rel=1e-3)
    assert of(found, "predicted") == pytest.approx(FITTED, rel=1e-3)


def test_misses_say_why(found: list[Figure]) -> None:
    assert [each.within for each in found[:4]] == [True] * 4
    assert sum(not each.within for each in found) == 10
    assert all(bool(each.note) is not each.within for each in found)
    assert {each.tolerance for each in found} == {0.05}


def test_nothing_is_quicker_than_the_peak(found: list[Figure]) -> None:
    by_name = {each.what: each.ours for each in found}
    assert by_name["prefill of 50K, vLLM"] > by_name["prefill of 50K, all of causal attention"]
    assert by_name["250 tokens after 4K, vLLM"] > by_name["250 tokens after 4K"]


def test_kind_and_sources() -> None:
    assert DERIVATION.kind == "identity"
    assert all(given.source and given.value for given in DERIVATION.inputs)
