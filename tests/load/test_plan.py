"""A plan survives the way to YAML and back, and reads well on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import load
from gnomon.errors import InputError
from gnomon.load.files import parse_yaml
from gnomon.spec import EngineChoice, Estimate, Goal, Plan, ServingLoad, Strategy
from gnomon.spec.workload import METRICS, STATISTICS

PLAN = Plan(
    model="llama-3.1-70b",
    chip="H100-SXM-80GB",
    replicas=2,
    strategy=Strategy(tp=4),
    dtype="fp8",
    kv_dtype="auto",
    engine=EngineChoice(version="0.24", settings={"max_num_batched_tokens": 2048}),
    load=ServingLoad(rate_per_s=8.0, input_tokens=1024, output_tokens=256),
    goals=(Goal("ttft", "p90", 1.0), Goal("tpot", "p90", 0.05)),
    predicted={"usd_h": 26.32, "ttft_s": {"p90": 0.71}},
)
TEXT = """\
schema: gnomon.plan/1
model: llama-3.1-70b
chip: H100-SXM-80GB
replicas: 2
strategy: {tp: 4, pp: 1, ep: 1, cp: 1, dp: 1}
dtype: fp8
kv_dtype: auto
engine:
  name: vllm
  version: '0.24'
  settings: {max_num_batched_tokens: 2048}
load: {rate_per_s: 8.0, input_tokens: 1024, output_tokens: 256, requests: 1000, seed: 0}
goals: {ttft_p90: 1.0, tpot_p90: 0.05}
predicted:
  usd_h: 26.32
  ttft_s: {p90: 0.71}
"""

names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
degrees = st.integers(1, 1024)
goals = st.builds(Goal, st.sampled_from(METRICS), st.sampled_from(STATISTICS), st.floats(1e-6, 1e6))
loads = st.builds(
    ServingLoad,
    trace=st.just("") | names,
    rate_per_s=st.none() | st.floats(1e-6, 1e6),
    input_tokens=st.none() | st.integers(1, 10**6),
    output_tokens=st.none() | st.integers(1, 10**6),
    requests=st.integers(0, 10**6),
    seed=st.integers(0, 2**62),
)
plans = st.builds(
    Plan,
    model=names,
    chip=names,
    replicas=degrees,
    strategy=st.builds(
        Strategy,
        tp=degrees,
        pp=degrees,
        ep=degrees,
        cp=degrees,
        dp=degrees,
        techniques=st.lists(names, max_size=2).map(tuple),
    ),
    dtype=names,
    kv_dtype=names,
    engine=st.builds(
        EngineChoice, name=names, version=st.just("") | names, settings=st.dictionaries(names, values, max_size=3)
    ),
    load=st.none() | loads,
    goals=st.lists(goals, max_size=3, unique_by=lambda goal: goal.name).map(tuple),
    predicted=st.dictionaries(names, values, max_size=3),
    id=st.just("") | names,
)


@given(plans)
def test_a_plan_comes_back(plan: Plan) -> None:
    assert load.plan_from_dict(load.plan_to_dict(plan)) == plan
    assert load.plan_from_dict(json.loads(json.dumps(load.plan_to_dict(plan)))) == plan
    text = load.plan_to_yaml(plan)
    assert load.plan_from_dict(parse_yaml(text, "plan.yaml")) == plan
    assert load.plan_to_yaml(load.plan_from_dict(parse_yaml(text, "plan.yaml"))) == text


def test_the_text_is_small_and_fixed(tmp_path: Path) -> None:
    load.write_plan(PLAN, tmp_path / "plan.yaml")
    assert (tmp_path / "plan.yaml").read_text() == TEXT
    assert load.read_plan(tmp_path / "plan.yaml") == PLAN


def test_a_hand_written_plan_may_be_short() -> None:
    text = TEXT[: TEXT.index("load:")] + "goals: {ttft_p90: 1s, tpot_p90: 50ms}\n"
    plan = load.plan_from_dict(parse_yaml(text, "plan.yaml"))
    assert plan.goals == PLAN.goals
    assert plan.load is None


def test_figures_of_any_kind_become_plain() -> None:
    predicted = {"a": np.float64(1.5), "b": (1, np.int64(2)), "c": Estimate.exact(3.0, "x"), "d": np.arange(2)}
    plain: dict[str, Any] = load.plan_to_dict(Plan(**_fields() | {"predicted": predicted}))["predicted"]
    assert plain["b"] == [1, 2]
    assert plain["c"]["value"] == 3.0
    assert json.dumps(plain)


def test_a_plan_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        load.write_plan(PLAN, tmp_path / "no" / "such" / "folder.yaml")


def _fields() -> dict[str, Any]:
    return {name: getattr(PLAN, name) for name in Plan.__dataclass_fields__}
