"""The commands that a report of `simulate serve` ends with ask about the same engine and load."""

from __future__ import annotations

import shlex
from itertools import pairwise
from typing import Any

import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.report.serve import render
from gnomon.report.text import Style

LOAD: dict[str, Any] = {"input": 64, "output": 8, "requests": 12}


def next_plan(**asked: Any) -> list[str]:
    """The words of the plan that is proposed; none where none is."""
    text = render(gnomon.simulate_serving("llama-3.2-1b", **LOAD, **asked), Style())
    lines = [line.strip().removeprefix("next: ") for line in text.splitlines() if "gnomon plan serve" in line]
    return shlex.split(lines[0]) if lines else []


def after(said: list[str], flag: str) -> list[str]:
    return [value for name, value in pairwise(said) if name == flag]


def test_flags_of_the_engine_are_carried() -> None:
    settings = {"max_num_seqs": 64, "enforce_eager": True}
    said = next_plan(on="H100", rate=4, dtype="fp8", kv_dtype="fp8", settings=settings, engine="vllm@0.33", seed=3)
    assert after(said, "--set") == ["max_num_seqs=64", "enforce_eager=true"]
    assert after(said, "--engine") == ["vllm@0.33.0"]
    assert (after(said, "--dtype"), after(said, "--kv-dtype"), after(said, "--seed")) == (["fp8"], ["fp8"], ["3"])
    adapters = next_plan(on="H100", rate=4, adapters="8", settings={"enable_lora": True})
    assert after(adapters, "--adapters") == ["8"] and after(adapters, "--set") == ["enable_lora=true"]
    assert after(next_plan(on="H100", rate=4, techniques=["int4-weights"]), "--with") == ["int4-weights"]


@pytest.mark.heavy
def test_what_is_usual_is_not_said() -> None:
    said = next_plan(on="H100", rate=4)
    assert not {"--engine", "--dtype", "--kv-dtype", "--set", "--with", "--seed", "--router"} & set(said)
    assert after(next_plan(on="H100", rate=4, engine="sglang"), "--engine")[0].startswith("sglang@")


def test_pools_carry_what_all_of_them_have() -> None:
    pools = ("prefill=H100:1,max_num_seqs=64,block_size=32", "decode=H100:1,max_num_seqs=128,block_size=32")
    said = next_plan(pools=pools, rate=4, kv_transfer="layerwise", dtype="fp8")
    assert after(said, "--set") == ["block_size=32"] and after(said, "--dtype") == ["fp8"]
    assert after(said, "--kv-transfer") == ["layerwise"]


def test_clients_of_a_closed_loop_have_no_rate_to_plan_for() -> None:
    assert not next_plan(on="H100", concurrency=4)
    assert not next_plan(on="H100")


def test_what_records_nothing_is_refused() -> None:
    for wrong in ({"record": 3}, {"progress": 3}):
        with pytest.raises(InputError, match="int is no"):
            gnomon.simulate_serving("llama-3.2-1b", on="H100", rate=4, **LOAD, **wrong)


def test_auto_names_both_plans_that_take_it() -> None:
    with pytest.raises(InputError, match="plan serve` and `plan train"):
        gnomon.simulate_serving("llama-3.2-1b", on="H100", rate=4, **LOAD, techniques=["auto"])
