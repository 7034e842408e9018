"""A clock below its highest: what takes longer, and what draws less."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import gnomon
from gnomon.spec.answers import Prediction

DECODE: dict[str, Any] = {"phase": "decode", "batch": 4, "context": 1000}
PROMPT: dict[str, Any] = {"phase": "prefill", "batch": 1, "tokens": 4096}
SHARES = (1.0, 0.9, 0.7, 0.5, 0.3)


def step(share: float, **words: Any) -> Prediction:
    return gnomon.predict("llama-3.1-8b", on="H200", **words, techniques=[f"clock-limit:share={share}"])


def watts(found: Prediction) -> float:
    return found.energy_j.value / found.time_s.value


@pytest.mark.parametrize("words", [DECODE, PROMPT], ids=["decode", "prompt"])
def test_the_highest_clock_is_the_plain_step(words: dict[str, Any]) -> None:
    plain, found = gnomon.predict("llama-3.1-8b", on="H200", **words), step(1, **words)
    assert found.time_s.value == plain.time_s.value and found.energy_j.value == plain.energy_j.value
    assert list(found.time_s.draws) == list(plain.time_s.draws)


@pytest.mark.parametrize("words", [DECODE, PROMPT], ids=["decode", "prompt"])
def test_a_lower_clock_is_never_faster_and_never_draws_more(words: dict[str, Any]) -> None:
    found = [step(share, **words) for share in SHARES]
    for one, other in pairwise(found):
        assert other.time_s.value > one.time_s.value and watts(other) <= watts(one)
    assert watts(found[-1]) < 0.6 * watts(found[0])


def test_prompts_follow_the_clock_more_than_decode_does() -> None:
    """A GEMM of an H200 at 1,455 of 1,980 MHz takes 1.19 times as long (`cost/governor.py`); what comes near the
    memory's bandwidth less."""
    prompt, decode = (
        step(1455 / 1980, **words).time_s.value / step(1, **words).time_s.value for words in (PROMPT, DECODE)
    )
    assert 1.15 < prompt < 1.25
    assert 1 < decode < 1 + 0.6 * (prompt - 1)


def test_joules_beyond_the_constant_draw_fall_with_the_voltage() -> None:
    """Of a decode step whose time does not change: 0.949 of them in proportion to the clock."""
    full, half = step(1, **DECODE), step(0.5, **DECODE)
    constant_w = full.energy_j.value / full.time_s.value - _dynamic_w(full, half)
    assert 50 < constant_w < 250


def _dynamic_w(full: Prediction, half: Prediction) -> float:
    longer = half.time_s.value / full.time_s.value
    kept = 1 - 0.949 + 0.949 * 0.5
    # full = c + d, half = c + d * kept / longer
    return (watts(full) - watts(half)) / (1 - kept / longer)


def test_experts_in_host_memory_draw_as_those_on_the_chip_where_all_are_cached() -> None:
    slow, cached = "clock-limit:share=0.5", "expert-offload:cached=1"
    alone, both = (
        gnomon.predict("qwen1.5-moe-a2.7b", on="H200", **PROMPT, techniques=texts) for texts in ([slow], [slow, cached])
    )
    assert both.time_s.value == pytest.approx(alone.time_s.value, rel=1e-9)
    assert both.energy_j.value == pytest.approx(alone.energy_j.value, rel=1e-9)
