"""Long contexts at peak: every figure pinned, no miss without its reason, and what is told of vLLM true."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gnomon
from gnomon.load import model as load_model
from gnomon.papers.base import Figure
from gnomon.papers.index.long_context_peak.figures import CHIP
from gnomon.papers.reproduce import figures
from gnomon.papers.source import reproduction

pytestmark = pytest.mark.slow

GIVEN = reproduction("long-context-peak")
PEAK = [0.902, 14.17, 8.556, 9.939, 17, 1, 12.29, 1.229, 17.62]


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return list(figures("long-context-peak"))


def test_figures(found: list[Figure]) -> None:
    assert [each.ours for each in found] == pytest.approx(PEAK, rel=1e-3)
    assert {each.kind for each in found} == {GIVEN.kind, "contradiction"} == {"identity", "contradiction"}


def test_misses_say_why(found: list[Figure]) -> None:
    assert [each.within for each in found[:4]] == [True] * 4
    assert all(bool(each.note) is not each.within for each in found)
    assert {each.tolerance for each in found} == {0.05}


def test_what_is_told_of_vllm() -> None:
    model, words = (
        replace(load_model("yi-34b"), max_context=200_000),
        " ".join(GIVEN.assumptions),
    )
    prefills = [gnomon.predict(model, on=CHIP, phase="prefill", tokens=tokens) for tokens in (4096, 50_000)]
    answers = [gnomon.predict(model, on=CHIP, phase="decode", context=tokens + 125) for tokens in (4096, 50_000)]
    assert [found.time_s.value for found in prefills] == pytest.approx([1.35, 27.9], rel=5e-3)
    assert [250 * found.time_s.value for found in answers] == pytest.approx([11.4, 13.2], rel=5e-3)
    assert [gnomon.fit(model, on=CHIP, context=tokens).max_batch for tokens in (4096, 50_000)] == [8, 0]
    assert all(part in words for part in ("1.35 s", "27.9 s", "11.4 and 13.2 s", "8 users", "none of 50K"))


def test_sources() -> None:
    assert GIVEN.techniques == ("kv-swap",)
