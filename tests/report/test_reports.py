"""What the reports say, and that what they tell to do next can be done."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.report import answers

from gnomon.load import parse_pool
from gnomon.load.answers import answer_from_dict
from gnomon.report import REPORTS, render
from gnomon.report.text import band, chip_count, chip_word, deployed, digits, fleet, part, scaled, table, words
from gnomon.spec.answers import JsonAnswer, Resolved, Result, Shortage
from gnomon.spec.estimate import Estimate

ANSWERS = {
    "predict": answers.prediction(),
    "fit": answers.fit(),
    "no-fit": answers.fit(False),
    "serve": answers.served(),
    "plan": answers.planned(),
    "verify": answers.verified(),
    "train": answers.trained(),
    "no-train": answers.trained(fits=False, usable_memory_bytes=60.0 * answers.GIB),
    "plan-train": answers.trained_plan(),
    "verify-train": answers.verified_training(),
}


def back(name: str) -> Result:
    """The answer as it comes back from the history."""
    return answer_from_dict(json.loads(json.dumps(ANSWERS[name].to_dict())))


@pytest.mark.parametrize("name", ANSWERS)
def test_every_report_ends_with_what_to_do_next(name: str) -> None:
    lines = render(back(name)).splitlines()
    start = next(index for index, line in enumerate(lines) if line.strip().startswith("next:"))
    for line in lines[start:]:
        assert shlex.split(line.replace("next:", ""))[0] == "gnomon"


@pytest.mark.parametrize("name", ANSWERS)
def test_plain_text_has_no_codes_and_no_trailing_spaces(name: str) -> None:
    text = render(back(name))
    assert "\033" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("name", ANSWERS)
def test_colour_changes_nothing_but_codes(name: str) -> None:
    import re

    text = render(back(name), colour=True)
    assert "\033[" in text
    assert re.sub(r"\033\[\d+m", "", text) == render(back(name))


def test_the_prediction_answers_first() -> None:
    lines = render(back("predict")).splitlines()
    assert lines[0].endswith("one decode step of 32 sequences at context 1,024")
    figures = "6.3 ms (6.02 to 6.58, 90%) 5,079 tokens/s 0.11 J/token $0.19/Mtok at $3.50/h"
    assert " ".join(lines[2].split()) == figures
    assert "memory bandwidth" in lines[3]


def test_the_prediction_lists_the_largest_first() -> None:
    lines = render(back("predict")).splitlines()
    head = next(index for index, line in enumerate(lines) if "where the time goes" in line)
    assert [line.split("  ")[1] for line in lines[head + 1 : head + 4]] == [
        "mlp gate and up",
        "qkv",
        "scheduler and launches",
    ]


def test_long_breakdowns_are_cut() -> None:
    many = tuple(answers.operator(f"op{index:02}", 1e-4 * (index + 1)) for index in range(20))
    text = render(answers.prediction(breakdown=many))
    assert "8 more" in text
    assert "op19" in text
    assert "op00" not in text


def test_memory_is_one_line() -> None:
    expected = "memory 24.1 of 140.4 GiB: weights 15.0, KV 4.0, activations 0.6, runtime 4.5"
    assert expected in render(back("predict"))


def test_a_step_that_does_not_fit_says_so() -> None:
    assert "does not fit" not in render(back("predict"))
    short = Shortage(part="cache", needs_bytes=4 * answers.GIB, left_bytes=2e9, sequences=32, tokens=1025)
    text = render(answers.prediction(fits=False, cause=short, memory_usable_bytes=20.0 * answers.GIB))
    assert "memory 24.1 of 20.0 GiB usable: weights" in text
    assert text.splitlines()[2].startswith(
        "  does not fit: 32 sequences of 1,025 tokens need 4.0 GiB of KV cache, 1.9 "
    )
    old = render(answers.prediction(fits=False))  # stored before there was a cause
    assert old.splitlines()[2] == "  does not fit: memory 24.1 GiB"


def test_what_does_not_fit_comes_with_changes() -> None:
    text = render(back("no-fit"))
    assert text.startswith("does not fit: weights 131.4 GiB")
    assert "2 GPUs, TP 2" in text
    assert "10.1 GiB for KV: 33,000 tokens" in text
    assert "next: gnomon fit llama-3.1-70b --on H100:2" in text


def test_a_served_load() -> None:
    text = render(back("serve"))
    assert "2,041 output tokens/s" in text
    assert "busy 83% of the time over 10,533 steps" in text
    assert "saturation at 19.5 requests/s" in text
    assert "preemption" not in text
    assert "3 preemptions" in render(answers.served(preemptions=3))


def test_an_overloaded_engine_is_said_before_its_times() -> None:
    lines = render(answers.served(overloaded=True)).splitlines()
    said = next(index for index, line in enumerate(lines) if "overloaded: the replica sustains 19.5 requests/s" in line)
    assert said < next(index for index, line in enumerate(lines) if "TTFT p90" in line)
    assert not any("overloaded" in line for line in render(back("serve")).splitlines())


def test_a_load_of_single_tokens_has_no_tpot() -> None:
    none = dict.fromkeys(("mean", "p50", "p90", "p99"))
    line = next(line for line in render(answers.served(tpot_s=none)).splitlines() if "TPOT  " in line)
    assert line.split() == ["TPOT", "-", "-", "-", "-", "-"]


def test_a_plan() -> None:
    text = render(back("plan"))
    assert "best      2 x (H100, TP 4, fp8, chunked prefill 2048)   $26.32/h" in text
    assert "48,312 plans: 31,200 fit, 9 simulated with up to 2,400 requests, the best with 20,000" in text
    assert "headroom  meets the goals up to 11.2 req/s (now 8)" in text
    cheaper = "the next cheaper plan, 3 x (H100, TP 2, fp8) at $19.74/h, misses TPOT p90 by 6 ms"
    assert f"binding   TPOT p90; {cheaper}" in text
    assert "runner-up 4 x (H100, TP 2, fp8)   $26.32/h" in text
    assert "near tie  2 x (H200, TP 2, fp8)   $27.40/h, +4%: TPOT p90 12 ms instead of 38 ms" in text
    assert "router    requests are assigned to replicas at random" in text
    assert re.search(r"TTFT p90 705 ms \(.* to .*, 90%\)", text)
    assert "also      of the simulated plans, lowest TTFT: 4 x (H100, TP 4, bf16)" in text
    assert "run it:   vllm serve" in text


def test_a_plan_without_a_second() -> None:
    nothing = {"why": "no cheaper plan fits the model"}
    none = {"why": "no other simulated plan meets the goals"}
    text = render(answers.planned(runner_up=none, next_cheaper=nothing, near_ties=(), pareto=()))
    assert "binding   TPOT p90; no cheaper plan fits the model" in text
    assert "runner-up no other simulated plan meets the goals" in text
    assert "also" not in text


def test_a_measurement() -> None:
    text = render(back("verify"))
    assert "median error 1.8%, largest 4.7%, over 4 figures" in text
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
    text = render(JsonAnswer(content=answer))
    assert "1,204 measured, 17 left, in calibration.csv" in text
    assert "gemm.bf16    900           3.1%        9.0%" in text
    assert "next: gnomon calibrate --out calibration.csv" in text


def test_every_schema_has_a_report() -> None:
    import importlib

    for module in REPORTS.values():
        assert callable(importlib.import_module(module).render)


def test_bands_are_in_the_unit_of_the_value() -> None:
    assert band(answers.estimate(0.0063, 0.07)) == "(5.9 to 6.7, 90%)"
    assert band(Estimate.exact(1.0)) == ""


def test_digits() -> None:
    shown = [digits(value) for value in (0, 0.00123, 0.5, 5.931, 14.13, 141.2, 5079.6)]
    assert shown == ["0", "0.00123", "0.5", "5.93", "14.1", "141", "5,080"]
    assert scaled(4.8e12, "B/s") == "4.8 TB/s"


def test_tables_and_words() -> None:
    assert table([("a", "1"), ("bb", "22")], "<>") == ["  a     1", "  bb   22"]
    assert words("gnomon", "fit", "my model", None, 8.0) == "gnomon fit 'my model' 8"


def lines_of(name: str) -> list[str]:
    return [" ".join(line.split()) for line in render(back(name)).splitlines()]


def test_a_training_step_answers_first() -> None:
    lines = lines_of("train")
    recipe = "micro-batch 1, selective recompute, ZeRO-1, interleaved, sequence parallel, adamw"
    assert lines[1] == f"TP 8, PP 2, VP 6, DP 2, {recipe}"
    assert lines[3] == "30.9 s per step (29.5 to 32.3, 90%) 51.2% MFU 52.4% HFU 99.4 tokens/s/GPU"
    assert lines[4] == "fits: memory 61.0 to 68.0 of 76.9 GiB usable by rank, 8.9 GiB to spare"


def test_where_the_time_of_a_training_step_goes() -> None:
    lines = lines_of("train")
    assert "forward and backward passes 27 s 87.4%" in lines
    assert "filling and draining the pipeline 5.86 ms 0.0%" in lines
    assert "waiting for sends and for the slowest stage 2.99 s 9.7%" in lines
    assert "gradient reduction after the last pass 500 ms 1.6%" in lines
    assert "of this, exposed communication: 2.1 s, 6.8%" in lines
    assert not any("gathering" in line for line in lines), "what takes no time is not listed"


def test_the_memory_and_the_run_of_a_training_step() -> None:
    lines = lines_of("train")
    parts = "weights 4.0, gradients 8.0, optimizer 24.0, activations 30.0, working 2.0"
    assert f"memory on pipeline rank 0, the fullest of 2, in GiB: {parts}" in lines
    assert "300B tokens: 95,367 steps, 34.1 days (32.6 to 35.6), $1.9M, 612 MWh" in lines
    assert "tokens:" not in render(answers.trained(run={}))


def test_a_training_step_that_does_not_fit() -> None:
    lines = lines_of("no-train")
    assert lines[3] == "does not fit: memory 61.0 to 68.0 of 60.0 GiB usable by rank, short by 8.0 GiB"
    assert not any("export" in line for line in lines)


def test_counts_are_written_so_that_a_flag_reads_them_back() -> None:
    from gnomon.report.train import count_word
    from gnomon.units import parse_count

    assert [count_word(count) for count in (None, 300e9, 1.4e12)] == [None, "300B", "1.4T"]
    assert parse_count(str(count_word(123_456_789.0))) == 123_456_789


def test_a_training_plan() -> None:
    lines = lines_of("plan-train")
    rejected = "9,870,113 do not fit (worst rank short by 0.2 GiB to 61.0 GiB), 1,828,402 pruned by bounds, 13 timed"
    assert lines[1] == f"11,698,528 plans: {rejected}; exact"
    assert lines[3].startswith("best TP 8, PP 2, VP 6, DP 2")
    figures = "51.2% MFU, 34.1 days (32.6 to 35.6), $1.9M, 612 MWh"
    assert lines[4] == f"30.9 s per step (29.5 to 32.3, 90%), {figures}"
    assert lines[5] == "memory 61.0 to 68.0 of 76.9 GiB usable by rank"
    assert lines[6] == "runner-up TP 4, PP 4, DP 2, micro-batch 2: 31.2 s, 0.97% slower"
    assert any(re.fullmatch("next: gnomon export last --to megatron --out train-[0-9a-f]{6}", line) for line in lines)
    assert any(
        re.fullmatch("gnomon export last --to torchrun --out train-[0-9a-f]{6}-torchrun", line) for line in lines
    )


def test_a_training_plan_without_a_second_or_with_chips_to_spare() -> None:
    found = answers.resolved("gpt3-175b", "A100-SXM-80GB:33")
    text = render(answers.trained_plan(runner_up={}, resolved=found))
    assert "runner-up" not in text
    assert "idle      1 chip: no plan that uses more of them is faster" in text


def test_measured_training_is_told_once() -> None:
    lines = lines_of("verify-train")
    assert "step time 840 ms 811 ms -3.5%" in lines
    assert "peak memory 39.0 GiB 38.9 GiB -0.2%" in lines
    assert not any("KV blocks" in line for line in lines)
    assert sum(line.startswith("step time") for line in lines) == 1


def test_models_without_a_hub_id_show_their_title() -> None:
    import gnomon

    text = render(gnomon.models("gpt3-175b"))
    assert text.startswith("GPT-3-175B: ") and "published as" not in text
    assert "meta-llama/Llama-3.1-8B-Instruct" in render(gnomon.models("llama-3.1-8b"))


def test_what_comes_next_keeps_what_was_asked(tmp_path: Path) -> None:
    cluster = tmp_path / "ours.yaml"
    cluster.write_text("schema: gnomon.cluster/1\nchip: H100\ncount: 16\n")
    whole_on, part_on = str(cluster), f"{cluster}:4"
    full, some = (Resolved.of(None, parse_pool(on)) for on in (whole_on, part_on))
    assert fleet(whole_on, full) == whole_on and fleet(part_on, some) == part_on
    assert (chip_count(whole_on, full), chip_count(part_on, some)) == (16, 4)
    assert chip_word(whole_on, full) == "H100-SXM-80GB"
    assert (fleet("H100", Resolved()), fleet("H100:16", Resolved())) == ("H100:8", "H100:16")
    whole = {"model": "llama-3.1-8b", "on": str(cluster), "tp": 16, "dtype": "bf16", "kv_dtype": "bf16"}
    known = answers.resolved("llama-3.1-8b", whole_on)
    assert deployed(whole, known) == ["llama-3.1-8b", "--on", whole_on]


def test_a_format_is_named_where_the_model_comes_in_another() -> None:
    words = {"model": "deepseek-v3", "on": "H200:8", "tp": 8, "dtype": "bf16", "kv_dtype": "bf16"}
    known = answers.resolved("deepseek-v3", "H200:8")
    assert deployed(words, known)[3:] == ["--dtype", "bf16"]
    assert deployed(words | {"dtype": "fp8"}, known)[3:] == []
    assert deployed(words | {"kind": "diffusion", "kv_dtype": "fp16"}, known)[3:] == ["--dtype", "bf16"]


def test_small_parts_have_a_small_unit() -> None:
    assert (part(15.0 * answers.GIB), part(0.01 * answers.GIB)) == ("15.0", "10.2 MiB")


def test_weights_in_two_formats_are_a_sum() -> None:
    from gnomon.api.known import models

    text = render(models("deepseek-v3"))
    assert "626.9 GiB: 623.3 GiB in fp8, 3.7 GiB in bf16" in text
    assert "KV per token" not in render(models("dit-xl-2-256"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dp": 8, "zero": 0}, "ZeRO-0"),
        ({"expert_tp": 1}, "unsharded experts"),
        ({"expert_tp": 4}, "experts sharded over 4"),
        ({"cp": 2, "cp_comm": "a2a"}, "KV by a2a"),
        ({"dtype": "fp8"}, "MFU of the fp8 peak"),
    ],
)
def test_a_training_step_says_how_it_is_carried_out(changes: dict[str, Any], said: str) -> None:
    answer = answers.trained()
    changed = answers.trained(inputs={**answer.inputs, **changes})
    assert said in render(changed) and said not in render(answer)


def test_a_plan_says_what_it_searched_weighed_and_depends_on() -> None:
    text = render(answers.planned(**answers.OTHERWISE))
    assert "chip H100, L40S x TP 1, 2 x 1 to 3 replicas x with any of fp8-kv" in text
    assert "int4-weights (quality changes), used: $2.10/h, $3.29/h without it" in text
    assert "kv-offloading (lossless), not used" in text
    assert "memory: the KV cache is full at times, 3 preemptions" in text
    assert "power: the limit lowers the clock to 94% of the highest" in text
    assert "up to 9 req/s" in text and "$39.48/h, +50%" in text
    assert "even without" in text
