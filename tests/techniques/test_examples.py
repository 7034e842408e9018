"""The examples of docs/techniques.md do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.techniques import CONSERVED, Technique

PAGE = Path(__file__).parents[2] / "docs" / "techniques.md"
STEP = {"model": "llama-3.2-1b", "on": "H100:8", "seq": 2048, "global_batch": 8, "engine": "deepspeed"}
LOAD = {"model": "llama-3.2-1b", "on": "H100", "rate": 4.0, "input": 600, "output": 20, "requests": 30}


def examples() -> dict[str, Technique[Any]]:
    """Every technique that the page has all of."""
    text = PAGE.read_text(encoding="utf-8").partition("## Write one")[2]
    found = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        space: dict[str, Any] = {"__name__": "example"}
        exec(compile(code, str(PAGE), "exec"), space)
        found |= {one.name: one for one in space["TECHNIQUES"]}
    return found


@pytest.fixture
def shown(outside: dict[str, Any]) -> dict[str, Any]:
    outside |= examples()
    return outside


def test_there_is_one_of_each_work() -> None:
    known = examples()
    assert {work for one in known.values() for work in one.work} == set(CONSERVED)
    assert all(one.changes <= {name for work in one.work for name in CONSERVED[work]} for one in known.values())


def test_that_of_training_shortens_reductions(shown: dict[str, Any]) -> None:
    names = ([], ["narrow-gradients"], ["narrow-gradients:bits=4"])
    steps = [gnomon.simulate_training(**STEP, techniques=each) for each in names]
    exposed = [step.exposed_communication_s for step in steps]
    assert exposed[0] > exposed[1] > exposed[2] > 0
    with pytest.raises(InputError, match="narrow-gradients does not apply: ZeRO 3 reduces gradients"):
        gnomon.simulate_training(**STEP, zero=3, techniques=["narrow-gradients"])
    found = gnomon.plan_training(
        "llama-3.2-1b", cluster="H100:8", seq=2048, global_batch=8, techniques=["narrow-gradients"]
    )
    assert found.best.plan.engine.settings["zero"] < 2


def test_that_of_serving_shortens_prompts(shown: dict[str, Any]) -> None:
    plain, short = (gnomon.simulate_serving(**LOAD, techniques=names) for names in ([], ["shorter-prompts:keep=0.25"]))
    assert short.ttft_s["p50"] < plain.ttft_s["p50"]
    np.testing.assert_array_equal(short.run.requests.input_tokens, 150)
    assert any(one.option == "--with shorter-prompts" and "not counted" in one.why for one in short.not_modelled)
    named = gnomon.techniques().techniques
    assert any(one["name"] == "shorter-prompts" and one["work"] == "serving" for one in named)
