"""What the reports say, and that what they tell to do next can be done."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from tests.report import answers

from gnomon.cli.output import finite
from gnomon.report import REPORTS, render
from gnomon.report.text import band, digits, scaled, table, words

ANSWERS = {
    "predict": answers.prediction(),
    "fit": answers.fit(),
    "no-fit": answers.fit(False),
    "serve": answers.served(),
    "plan": answers.planned(),
    "verify": answers.verified(),
}


def payload(name: str) -> dict[str, Any]:
    """The answer as it comes back from the history."""
    read: dict[str, Any] = json.loads(json.dumps(finite(ANSWERS[name].to_dict())))
    return read


@pytest.mark.parametrize("name", ANSWERS)
def test_every_report_ends_with_what_to_do_next(name: str) -> None:
    lines = render(payload(name)).splitlines()
    start = next(index for index, line in enumerate(lines) if line.strip().startswith("next:"))
    for line in lines[start:]:
        assert shlex.split(line.replace("next:", ""))[0] == "gnomon"


@pytest.mark.parametrize("name", ANSWERS)
def test_plain_text_has_no_codes_and_no_trailing_spaces(name: str) -> None:
    text = render(payload(name))
    assert "\033" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("name", ANSWERS)
def test_colour_changes_nothing_but_codes(name: str) -> None:
    import re

    text = render(payload(name), colour=True)
    assert "\033[" in text
    assert re.sub(r"\033\[\d+m", "", text) == render(payload(name))


def test_the_prediction_answers_first() -> None:
    lines = render(payload("predict")).splitlines()
    assert lines[0].endswith("one decode step of 32 sequences at context 1,024")
    figures = "6.3 ms (6.02 to 6.58, 90%) 5,079 tokens/s 0.11 J/token $0.19/Mtok at $3.50/h"
    assert " ".join(lines[2].split()) == figures
    assert "memory bandwidth" in lines[3]


def test_the_prediction_lists_the_largest_first() -> None:
    lines = render(payload("predict")).splitlines()
    head = next(index for index, line in enumerate(lines) if "where the time goes" in line)
    assert [line.split("  ")[1] for line in lines[head + 1 : head + 4]] == [
        "mlp gate and up",
        "qkv",
        "scheduler and launches",
    ]


def test_long_breakdowns_are_cut() -> None:
    many = tuple(answers.operator(f"op{index:02}", 1e-4 * (index + 1)) for index in range(20))
    text = render(answers.prediction(breakdown=many).to_dict())
    assert "8 more" in text
    assert "op19" in text
    assert "op00" not in text


def test_memory_is_one_line() -> None:
    expected = "memory 24.1 of 140.4 GiB: weights 15.0, KV 4.0, activations 0.6, runtime 4.5"
    assert expected in render(payload("predict"))


def test_a_step_that_does_not_fit_says_so() -> None:
    assert "does not fit" not in render(payload("predict"))
    assert "it does not fit" in render(answers.prediction(fits=False).to_dict())


def test_what_does_not_fit_comes_with_changes() -> None:
    text = render(payload("no-fit"))
    assert text.startswith("does not fit: weights 131.4 GiB")
    assert "2 GPUs, TP 2" in text
    assert "10.1 GiB for KV: 33,000 tokens" in text
    assert "next: gnomon fit llama-3.1-70b --on H100:2" in text


def test_a_served_load() -> None:
    text = render(payload("serve"))
    assert "2,041 output tokens/s" in text
    assert "busy 83% of the time over 10,533 steps" in text
    assert "thrown out" not in text
    assert "3 requests thrown out" in render(answers.served(preemptions=3).to_dict())


def test_a_load_of_single_tokens_has_no_tpot() -> None:
    none = dict.fromkeys(("mean", "p50", "p90", "p99"))
    line = next(line for line in render(answers.served(tpot_s=none).to_dict()).splitlines() if "TPOT  " in line)
    assert line.split() == ["TPOT", "-", "-", "-", "-"]


def test_a_plan() -> None:
    text = render(payload("plan"))
    assert "best      2 x (H100, TP 4, fp8, chunked prefill 2048)   $26.32/h" in text
    assert "the goals up to 11.2 req/s (now 8)" in text
    assert "binding   TPOT p90; the second best, 3 x (H100, TP 2, fp8), misses TPOT p90 by 6 ms" in text
    assert "also      lowest TTFT: 4 x (H100, TP 4, bf16)" in text
    assert "run it:   vllm serve" in text


def test_a_plan_without_a_second() -> None:
    text = render(answers.planned(runner_up={"why": "nothing cheaper holds the model"}, pareto=()).to_dict())
    assert "binding   TPOT p90; nothing cheaper holds the model" in text
    assert "also" not in text


def test_a_measurement() -> None:
    text = render(payload("verify"))
    assert "off by 1.8% in the middle, 4.7% at most, over 4 figures" in text
    assert "TTFT p90" in text
    assert "-4.7%" in text
    assert "decode alone: 32 sequences at context 1,024" in text


def test_a_calibration() -> None:
    error = {"mean": 0.04, "median": 0.031, "p90": 0.09, "bias": 0.0}
    answer = {
        "schema": "gnomon.calibrate/1",
        "title": "H200-SXM-141GB: 1,204 operators measured",
        "chip": "H200-SXM-141GB",
        "table": "calibration.csv",
        "rows": {"kept": 0, "measured": 1204, "failed": 0, "left": 17},
        "families": {"gemm.bf16": {"rows": 900, "held_out": error}},
    }
    text = render(answer)
    assert "1,204 measured, 17 left, in calibration.csv" in text
    assert "gemm.bf16    900           3.1%        9.0%" in text
    assert "next: gnomon calibrate --out calibration.csv" in text


def test_every_schema_has_a_report() -> None:
    import importlib

    for module in REPORTS.values():
        assert callable(importlib.import_module(module).render)


def test_bands_are_in_the_unit_of_the_value() -> None:
    assert band({"value": 0.0063, "low": 0.0059, "high": 0.0067}) == "(5.9 to 6.7, 90%)"
    assert band({"value": 1.0, "low": 1.0, "high": 1.0}) == ""


def test_digits() -> None:
    shown = [digits(value) for value in (0, 0.00123, 0.5, 5.931, 14.13, 141.2, 5079.6)]
    assert shown == ["0", "0.00123", "0.5", "5.93", "14.1", "141", "5,080"]
    assert scaled(4.8e12, "B/s") == "4.8 TB/s"


def test_tables_and_words() -> None:
    assert table([("a", "1"), ("bb", "22")], "<>") == ["  a     1", "  bb   22"]
    assert words("gnomon", "fit", "my model", None, 8.0) == "gnomon fit 'my model' 8"
