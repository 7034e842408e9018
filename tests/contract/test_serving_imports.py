"""Commands that serve a model import nothing of training, and nothing that only other commands need."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOUNS = {"gnomon.spec.training", "gnomon.spec.questions.training", "gnomon.spec.answers.training"}
"""Records without a formula: a plan holds the load of one or the other kind, `simulate` has a command of either, and
an answer is of one of all kinds."""
APART = ("training", "megatron", "torch")
HEAVY = {"pydantic", "rich", "torch", "ssl", "http", "numpy.testing", "matplotlib", "duckdb"}
ENGINES = "gnomon.engines."
CHIP = ("--on", "H100")
SERVING = {
    "predict decode": ("predict", "llama-3.1-8b", *CHIP, "--phase", "decode", "--batch", "32", "--context", "1024"),
    "predict prefill": ("predict", "llama-3.1-8b", *CHIP, "--phase", "prefill", "--tokens", "512"),
    "predict of latents": ("predict", "deepseek-v2-lite", *CHIP, "--batch", "8", "--context", "1024"),
    "predict of states": ("predict", "jamba-52b", "--on", "H100:4", "--tp", "4", "--batch", "8", "--context", "1024"),
    "predict as JSON": ("predict", "mixtral-8x7b", "--on", "H100:2", "--batch", "8", "--context", "512", "--json"),
    "predict with a setting": ("predict", "qwen3-8b", *CHIP, "--batch", "8", "--set", "enforce_eager=true"),
    "predict with techniques": (
        *("predict", "llama-3.1-8b", "--on", "A100", "--batch", "4", "--context", "512"),
        *("--with", "int4-weights", "--with", "kv-swap"),
    ),
    "fit": ("fit", "llama-3.1-70b", "--on", "H100:4"),
    "fit, too large": ("fit", "llama-3.1-70b", *CHIP),
    "simulate serve": (
        *("simulate", "serve", "llama-3.1-8b", *CHIP, "--rate", "2"),
        *("--input", "128", "--output", "16", "--requests", "8"),
    ),
}


def imported(argv: tuple[str, ...]) -> set[str]:
    """Modules of a process that ran a command."""
    lines = ["import sys", "from gnomon.cli.run import run", f"code = run({list(argv)!r})"]
    lines += ["print(chr(10), code, *sys.modules, sep=chr(10))"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    code, *modules = done.stdout.rpartition("\n\n\n")[2].split()
    assert code in ("0", "4"), done.stderr
    return set(modules)


@pytest.mark.parametrize("case", SERVING)
def test_serving_imports_nothing_of_training(case: str) -> None:
    found = imported(SERVING[case])
    assert "gnomon.engines.vllm.engine" in found
    ours = {name for name in found if name.partition(".")[0] == "gnomon"} - NOUNS
    assert not {name for name in ours if any(word in name for word in APART)}
    assert not found & HEAVY


@pytest.mark.parametrize("case", [name for name in SERVING if name.startswith("predict")])
def test_one_step_imports_no_simulator(case: str) -> None:
    found = imported(SERVING[case])
    assert not {name for name in found if name.startswith(("gnomon.sim.", "gnomon.search.", "gnomon.calibrate"))}


@pytest.mark.parametrize("case", [name for name in SERVING if name.startswith(("predict", "simulate"))])
def test_a_prediction_imports_nothing_that_starts_an_engine(case: str) -> None:
    started = ("operations", "launch", "script", "runner", "replay")
    assert not {name for name in imported(SERVING[case]) if name.startswith(ENGINES) and name.endswith(started)}
