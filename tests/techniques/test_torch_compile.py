"""torch.compile: what it saves, whom it does not apply to, and the file that says it."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError

JOB: dict[str, Any] = {"on": "A100:8", "seq": 2048, "global_batch": 64}
COMPILED = ["torch-compile"]


def run(engine: str = "transformers", techniques: list[str] | None = None) -> Any:
    return gnomon.simulate_training("llama-3.2-1b", engine=engine, techniques=techniques or [], **JOB)


def test_a_compiled_step_is_shorter_and_saves_less() -> None:
    plain, compiled = run(), run(techniques=COMPILED)
    assert compiled.step_time_s.value < 0.97 * plain.step_time_s.value
    (before,), (after,) = plain.memory_parts, compiled.memory_parts
    assert after["activations"] < before["activations"]
    assert after["weights"] == before["weights"]


def test_it_comes_near_an_engine_that_compiles() -> None:
    """TorchTitan's compiled layers: the same joined kernels, with launches, loss and update of its own."""
    plain, titan = run(), run("torchtitan")
    compiled = run(techniques=COMPILED)
    gap = abs(compiled.step_time_s.value / titan.step_time_s.value - 1)
    assert gap < abs(plain.step_time_s.value / titan.step_time_s.value - 1)


@pytest.mark.parametrize("engine", ["megatron", "torchtitan", "deepspeed"])
def test_engines_whose_kernels_are_joined_have_no_use_for_it(engine: str) -> None:
    with pytest.raises(InputError, match="joined already"):
        run(engine, COMPILED)


@pytest.mark.parametrize("techniques", [COMPILED, []])
def test_the_trainer_is_told(techniques: list[str]) -> None:
    files = gnomon.export(run(techniques=techniques).plan, to="transformers").files
    told = [text for name, text in files.items() if name.endswith(".yaml") and "torch_compile: true" in text]
    assert len(told) == len(techniques)
