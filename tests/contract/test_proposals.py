"""What messages propose is run: changes that make a model fit, commands to go on with, values that errors name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.contract.asking import next_lines, proposals, say

from gnomon import catalog
from gnomon.engines.vllm.formats import supported
from gnomon.load.chip_file import template

ROOT = Path(__file__).parents[2]
CLUSTER = "schema: gnomon.cluster/1\nchip: H100\ncount: 8\nper_node: 4\n"
HOST = "host: {memory_gib: 32, memory_gb_s: 300, adam_gparam_s: 4, nvme_write_gb_s: 3}\n"
FITS = """
fit llama-3.1-8b --on RTX-4090
fit llama-3.1-8b --on RTX-4090 --dtype int4
fit llama-3.1-8b --on RTX-4090 --dtype int4 --context 131072
fit llama-3.1-8b --on RTX-4090 --set max_num_seqs=64 --set max_model_len=100000
fit llama-3.1-8b --on V100
fit llama-3.1-70b --on H100
fit llama-3.1-70b --on H100 --context 4096
fit llama-3.1-70b --on H100:2 --tp 1 --pp 2
fit llama-3.1-70b --on H100:2 --dp 2
fit llama-3.1-70b --on A100:4 --tp 2
fit llama-3.1-405b --on H100:8
fit qwen3-235b-a22b --on H100:4 --ep 4
fit qwen3-235b-a22b --on L40S:8 --dp 2 --ep 8
fit deepseek-v3 --on H100:8
fit mixtral-8x7b --on L40S
fit gemma-3-27b --on L4
fit nemotron-h-8b --on T4
fit qwen2.5-vl-7b --on T4
fit llama-4-scout --on H100
fit llama-3.1-70b --on cluster.yaml:2
fit llama-3.1-405b --on cluster.yaml
fit llama-3.1-70b --on chip.yaml
""".strip().splitlines()
MORE = """
fit gpt2 --on H100
fit mamba-2.8b --on K80
fit llama-3.2-1b --on K80
fit yi-34b --on RTX-4090 --with int4-weights
fit opt-125m --on T4
fit qwen3-235b-a22b --on H200:8 --dp 2 --ep 8
fit bert-large --on H100
fit bert-large --on T4 --engine torch
fit dit-xl-2-256 --on T4
fit whisper-large-v3 --on T4
fit t5-large --on T4
fit yi-34b --on H100 --with swapped-sessions
predict gpt2 --on H100
predict llama-3.2-1b --on chip.yaml
predict llama-3.1-70b --on H100:4 --tp 2 --pp 2
predict qwen3-30b-a3b --on H100:4 --ep 4
predict bert-large --on H100 --tokens 128
predict bert-large --on H100 --tokens 128 --engine torch
predict dit-xl-2-256 --on H100
predict whisper-large-v3 --on H100
predict t5-large --on H100 --phase prefill --tokens 2
predict qwen2.5-vl-7b --on H100 --phase prefill --tokens 12
predict mamba-2.8b --on H100
predict llama-3.2-1b --on H100:2 --phase train --batch 4 --tokens 2048
predict llama-3.1-8b --on H100:4 --phase train --batch 4 --tokens 2048 --engine megatron --tp 2
simulate train llama-3.1-8b --on H100:8 --seq 2048 --global-batch 8 --zero 3
simulate train gpt2 --on H100:8 --seq 1024 --global-batch 8 --engine torch
simulate train gpt2 --on H100:8 --seq 512 --global-batch 16 --tokens 1B --failures 1/gpu-day --restart-time 90s
""".strip().splitlines()
WRONG = """
predict llama-3.2-1b --on H100:8 --tp 3
predict llama-3.2-1b --on H100:3
predict llama-3.2-1b --on H100:8 --tp 16
predict llama-3.2-1b --on H100:8 --pp 3
predict llama-3.2-1b --on H100:8 --pp 40
predict llama-3.2-1b --on H100:8 --dp 3
predict llama-3.2-1b --on H100:8 --ep 3
predict llama-3.2-1b --on chip.yaml:3
predict llama-3.2-1b --on chip.yaml:2 --tp 4
predict llama-3.2-1b --on cluster.yaml:3
predict qwen3-30b-a3b --on H100:8 --ep 3
predict qwen3-30b-a3b --on H100:8 --tp 3
predict deepseek-v3 --on H100:8 --tp 7
predict mamba-2.8b --on H100:8 --tp 3
predict qwen3-235b-a22b --on H100:16 --tp 16 --cp 3
predict bert-large --on H100:8 --tp 3 --tokens 12
predict whisper-large-v3 --on H100:7
predict whisper-large-v3 --on H100:7 --tp 7
predict qwen2.5-vl-7b --on H100:3
predict llama-3.2-1b --on V100 --dtype fp8
predict llama-3.2-1b --on V100 --dtype bf16
predict llama-3.2-1b --on MI300X --dtype int4
predict llama-3.2-1b --on B200 --dtype int8
predict bert-large --on V100 --tokens 12 --dtype fp8
predict dit-xl-2-256 --on V100 --dtype fp8
predict llama-3.2-1b --on H100 --context 200000
predict llama-3.2-1b --on H100 --phase prefill --tokens 200000
predict llama-3.2-1b --on H100 --batch 5000
predict llama-3.2-1b --on T4 --batch 5000
predict llama-3.2-1b --on H100 --set max_model_len=1000000
fit llama-3.2-1b --on H100:8 --tp 3
fit llama-3.2-1b --on H100:5
fit bert-large --on V100 --dtype int4
fit llama-3.2-1b --on V100 --dtype nvfp4
simulate serve llama-3.2-1b --input 10 --output 4 --requests 3 --on H100:3
simulate serve llama-3.2-1b --input 10 --output 4 --requests 3 --on H100:8 --tp 6
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --tp 3
simulate train llama-3.2-1b --on H100:3 --seq 512 --global-batch 16 --tp 3
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --tp 16
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --pp 3
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --pp 40
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --ep 3
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --dp 3
simulate train llama-3.2-1b --on H100:16 --seq 512 --global-batch 16 --tp 4 --dp 2
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 7
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --micro-batch 3
simulate train llama-3.2-1b --on H100:8 --seq 514 --global-batch 16 --tp 4
simulate train llama-3.2-1b --on H100:8 --seq 200000 --global-batch 16
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --dtype nvfp4
simulate train llama-3.2-1b --on V100:8 --seq 512 --global-batch 16 --dtype bf16
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --engine torch --dtype fp16
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16 --engine torch --pp 2
simulate train llama-3.1-8b --on H100:4 --seq 512 --global-batch 16 --pp 4 --vp 3 --engine megatron@3.0
simulate train llama-3.2-1b --on cluster.yaml:6 --seq 512 --global-batch 24 --tp 4
predict llama-3.2-1b --on H100:8 --phase train --tokens 512 --batch 16 --dtype fp16
predict llama-3.2-1b --on H100:8 --phase train --tokens 512 --batch 16 --context 5
predict llama-3.2-1b --on H100:8 --phase train --tokens 512 --batch 15
plan train llama-3.1-8b --cluster H100:1 --seq 2048 --global-batch 16
plan train llama-3.1-70b --cluster H100:8 --seq 8192 --global-batch 16
plan train llama-3.1-8b --cluster RTX-4090:2 --seq 2048 --global-batch 16
plan train llama-3.1-8b --cluster H100:8 --seq 200000 --global-batch 8
""".strip().splitlines()
NO_PROPOSAL = ("cluster.yaml:6", "V100:8 --seq 512")
"""Where nothing that a message could name works: a file's chips are all there are."""
QUESTIONS = ("explain last", "export last", "fit ", "plan serve", "plan train")
"""Commands that ask what would do, and may answer that nothing does."""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster and a chip of one's own beside each command."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "small.yaml").write_text(CLUSTER + HOST)
    (tmp_path / "chip.yaml").write_text(template("mine", catalog.chip("H100")))


@pytest.mark.parametrize("line", FITS)
def test_changes_that_fit_do(line: str) -> None:
    said = say(f"{line} --json")
    assert said.code == 0, said.err
    found = said.answer
    assert not found["fits"]
    assert found["cause"]["needs_bytes"] > found["cause"]["left_bytes"]
    for change in found["changes"]:
        flags = change["flags"]
        words = " ".join(f"--{name} {value}" for name, value in flags.items())
        base = line.replace(" --context 131072", "").replace(" --context 4096", "") if "set" in flags else line
        base = base.replace(" --set max_model_len=100000", "") if "set" in flags else base
        tried = say(f"{base} {words} --json")
        assert tried.code == 0, (change["what"], tried.err)
        assert tried.answer["fits"], change["what"]
        assert tried.answer["kv_tokens"] >= 0.99 * change["kv_tokens"], change["what"]


@pytest.mark.slow
@pytest.mark.parametrize("line", FITS + MORE)
def test_commands_to_go_on_with_run(line: str) -> None:
    said = say(line)
    assert said.code == 0, said.err
    lines = next_lines(said.out)
    assert lines
    for more in lines:
        if more.startswith("plan serve"):
            more += " --requests 20 --set max_num_seqs=64 --set max_num_batched_tokens=2048"
        tried = say(more)
        assert tried.code == 0, (more, tried.err)
        assert more.startswith(QUESTIONS) or "does not fit" not in tried.out, more


@pytest.mark.heavy
@pytest.mark.battery(6)
@pytest.mark.parametrize("line", ["fit gpt2 --on H100", "predict gpt2 --on H100", *FITS[::8]])
def test_some_commands_to_go_on_with_run(line: str) -> None:
    test_commands_to_go_on_with_run(line)


LOAD = "--rate 4 --input 100 --output 8 --requests 20"
SMALL = "--set max_num_seqs=64 --set max_num_batched_tokens=2048"
ANSWERS = f"""
plan serve llama-3.2-1b --fleet H100:1 {LOAD} {SMALL} --dtype bf16; plan serve llama-3.2-1b --fleet H100:1 {LOAD} {SMALL} --dtype fp8; explain last
plan train llama-3.2-1b --cluster H100:4 --seq 512 --global-batch 16; plan train llama-3.2-1b --cluster H100:2 --seq 512 --global-batch 16; explain last
simulate serve llama-3.2-1b --on H100 {LOAD}; explain last
simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16; explain last
predict llama-3.2-1b --on H100; explain last; history
try gptq --model llama-3.2-1b --on H100
try zero-offload --model llama-3.2-1b --on H100:2
compare plan.yaml plan.yaml
sweep sweep.yaml --out rows.jsonl
chips
chips show L4
chips new mine --like L4 --out mine.yaml
models
models --find llama
models show gpt2
techniques
papers
papers search offload
papers show zero-offload
papers run zero-offload
plan train llama-3.2-1b --cluster H100:2 --seq 512 --global-batch 16; papers apply last
accuracy
accuracy --chip H100 --family gemm
lab
lab predict gptq
launch plan.yaml --dry-run
""".strip().splitlines()  # noqa: E501
"""Command lines that end with others to go on with, in one folder one after the other."""
NEED_TORCH = ("lab run",)
"""Commands that refuse with what to install where that is missing."""


@pytest.mark.heavy
@pytest.mark.battery(2)
@pytest.mark.parametrize("lines", ANSWERS, ids=lambda lines: lines[:50])
def test_what_any_answer_proposes_runs(lines: str) -> None:
    """As a user pastes them: what an earlier answer left in the folder is not in the way."""
    Path("plan.yaml").write_text((ROOT / "examples" / "plan.yaml").read_text())
    Path("sweep.yaml").write_text("command: fit\nfixed: {model: llama-3.2-1b}\nover: {'on': [H100, L4]}\n")
    for line in lines.split("; "):
        said = say(line)
        assert said.code == 0, (line, said.err)
        proposed = next_lines(said.out)
        assert proposed, line
        for more in proposed:
            tried = say(more + (f" --requests 20 {SMALL}" if more.startswith("plan serve") else ""))
            if more.startswith(NEED_TORCH) and tried.code:
                assert "pip install 'gnomon[torch]'" in tried.err
            else:
                assert tried.code == 0, (more, tried.err)
        if line != "explain last":
            say(line)  # what was pasted is the last run no more


@pytest.mark.battery(8)
@pytest.mark.parametrize("line", WRONG)
def test_what_errors_propose_works(line: str) -> None:
    said = say(line)
    assert said.code in (2, 4)
    assert said.err.startswith("error: --"), said.err
    found = proposals(line, said.err)
    assert found or any(words in line for words in NO_PROPOSAL), said.err
    for other in found:
        tried = say(other)
        assert tried.code == 0, (said.err, other, tried.err)


@pytest.mark.slow
@pytest.mark.parametrize("chip", catalog.chip_names())
def test_formats_that_are_said_to_run_do(chip: str) -> None:
    for dtype in supported(catalog.chip(chip)):
        assert say(f"predict llama-3.2-1b --on {chip} --dtype {dtype} --set max_model_len=1024").code == 0, dtype


@pytest.mark.parametrize("chip", catalog.chip_names()[::12])
def test_formats_that_are_said_to_run_do_on_some_chips(chip: str) -> None:
    test_formats_that_are_said_to_run_do(chip)


def test_a_chip_without_16_bits_runs_nothing(tmp_path: Path) -> None:
    text = (tmp_path / "chip.yaml").read_text()
    rates = next(line for line in text.splitlines() if line.startswith("rates_tflops"))
    (tmp_path / "wide.yaml").write_text(text.replace(rates, "rates_tflops: {fp32: 67, fp8: 1979}"))
    for dtype in ("bf16", "fp8", "int4", "nvfp4"):
        said = say(f"predict llama-3.2-1b --on wide.yaml --dtype {dtype}")
        assert said.code == 2
        assert "What runs there" not in said.err, said.err


def test_the_verdict_and_its_cause_come_first() -> None:
    said = say("fit llama-3.1-8b --on RTX-4090 --dtype int4")
    assert said.out.startswith(
        "does not fit: one sequence of 131,072 tokens needs 16.0 GiB of KV cache, 15.8 GiB are left next to weights of "
        "5.3 GiB and "
    )
    assert said.out.splitlines()[0].endswith("to work in (RTX-4090, 21.8 GiB usable)")
    cause = say("fit llama-3.1-8b --on RTX-4090 --dtype int4 --json").answer["cause"]
    assert (cause["part"], cause["sequences"], cause["tokens"]) == ("cache", 1, 131_072)
    weights = say("fit llama-3.1-70b --on H100 --json").answer["cause"]
    assert weights["part"] == "weights"
    assert json.dumps(weights)
    assert say("fit llama-3.2-1b --on H100 --json").answer["cause"] is None


VERDICTS = {
    "predict kimi-k2 --on H100:8": (
        "weights",
        "weights 121.0 GiB per chip in fp8, 8 x H100 have 72.9 GiB usable per chip",
    ),
    "predict llama-3.1-8b --on RTX-4090 --batch 64 --context 8192": (
        "cache",
        "64 sequences of 8,193 tokens need 64.0 GiB of KV cache, 6.1 GiB are left next to weights of 15.0 GiB and",
    ),
    "predict llama-3.1-8b --on L4 --set max_num_batched_tokens=131072": (
        "working memory",
        "the step needs 15.0 GiB to work in, 5.4 GiB are left next to weights of 15.0 GiB (L4, 20.4 GiB usable)",
    ),
    "predict llama-3.1-8b --on H100:2 --phase train --batch 4 --tokens 2048": (
        "states",
        "weights, gradients and optimizer states need 134.6 GiB (H100-SXM-80GB, 77.0 GiB usable on each of 2)",
    ),
    "simulate train llama-3.2-1b --on H100 --seq 32768 --global-batch 4 --micro-batch 4": (
        "working memory",
        "4 sequences of 32,768 tokens need ",
    ),
    "simulate train llama-3.1-8b --on small.yaml --tp 4 --seq 2048 --global-batch 16 --with offload-optimizer": (
        "host memory",
        "what is kept in a host's memory needs ",
    ),
}


@pytest.mark.parametrize("line", VERDICTS)
def test_a_step_that_does_not_fit_says_so_before_its_time(line: str) -> None:
    part, words = VERDICTS[line]
    said = say(line)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    place = next(number for number, text in enumerate(lines) if "does not fit" in text)
    assert place <= 3
    assert lines[place].startswith(f"  does not fit: {words}")
    assert not any(unit in text for text in lines[:place] for unit in (" ms ", " s per step"))
    assert "assume that it fits" in lines[place + 1]
    answer = say(f"{line} --json").answer
    assert answer["fits"] is False
    assert answer["cause"]["part"] == part
    assert answer["cause"]["needs_bytes"] > answer["cause"]["left_bytes"]
