"""Published runs of SGLang: which are compared, and that no fitted one is."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.accuracy import sglang_rows
from gnomon.accuracy.sglang_rows import APART, FITTED, FORM, GROUP, SglangRun, compare, runs

MEASUREMENTS = Path(__file__).parents[2] / "measurements"


def test_a_plan_is_in_one_half() -> None:
    """Runs that differ in their load alone are fitted together or kept out together."""
    halves: dict[tuple[str, ...], set[bool]] = {}
    for run in runs(MEASUREMENTS):
        plan = tuple(run.row[name] for name in ("source", "model", "dtype", "chip", "tp", "ep"))
        halves.setdefault(plan, set()).add(run.kept_out)
    assert all(len(half) == 1 for half in halves.values())
    assert {half for found in halves.values() for half in found} == {True, False}


def test_what_is_compared_was_not_fitted() -> None:
    """Fitted are known cards of one half; a card of unknown form is compared whatever half it is in."""
    found = runs(MEASUREMENTS)
    assert {run.reject_reason for run in found} == {"", APART, FITTED}
    assert not any(run.known and not run.kept_out for run in found if not run.reject_reason)
    assert all(run.reject_reason == FITTED for run in found if run.known and not run.kept_out)
    assert runs(MEASUREMENTS / "nothing") == []


def test_lengths_have_the_totals_of_the_run() -> None:
    for run in runs(MEASUREMENTS):
        load = run.requests
        assert len(load) == int(run.row["requests"])
        assert load.input_tokens.sum() == pytest.approx(int(run.row["input_tokens"]), rel=0.01)
        assert load.output_tokens.sum() == pytest.approx(int(run.row["output_tokens"]), rel=0.01)


@pytest.mark.parametrize(("chip", "group"), [("B200-SXM-180GB", GROUP), ("H100-SXM-80GB", FORM)])
def test_a_run_beside_its_prediction(chip: str, group: str) -> None:
    row = {
        "source": "x", "version": "0.5.6", "model": "qwen3-8b", "dtype": "bf16", "chip": chip, "tp": "1", "ep": "1",
        "lengths": "fixed", "requests": "16", "input_tokens": "16000", "output_tokens": "1600", "clients": "4",
        "tpot_median_ms": "8", "ttft_median_ms": "40", "duration_s": "4", "apart": "",
    }  # fmt: skip
    found = compare(SglangRun(row=row))
    assert [one["what"] for one in found] == list(sglang_rows.WORDS)
    assert all(one["group"] == group and one["low"] <= one["predicted"] <= one["high"] for one in found)
    tpot, ttft, whole = (one["predicted"] for one in found)
    assert whole > 4 * (ttft + 90 * tpot)
