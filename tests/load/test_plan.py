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
from gnomon.load.goals import duration_text, goals_of
from gnomon.load.plan import FORMATS, plan_from_file
from gnomon.load.recipe import recipe_of
from gnomon.sim.training import SCHEDULES
from gnomon.spec import EngineChoice, Estimate, Goal, Plan, Recipe, ServingLoad, Strategy, TrainingLoad
from gnomon.spec.plan_dict import plan_to_dict
from gnomon.spec.training import OPTIMIZERS, RECOMPUTE
from gnomon.spec.workload import METRICS, STATISTICS
from gnomon.units import parse_duration

PLAN = Plan(
    model="llama-3.1-70b",
    chip="H100-SXM-80GB",
    replicas=2,
    strategy=Strategy(tp=4),
    dtype="fp8",
    kv_dtype="bf16",
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
router: random
strategy: {tp: 4, pp: 1, ep: 1, cp: 1, dp: 1}
dtype: fp8
kv_dtype: bf16
engine:
  name: vllm
  version: '0.24'
  settings: {max_num_batched_tokens: 2048}
load: {rate_per_s: 8.0, input_tokens: 1024, output_tokens: 256, requests: 1000, seed: 0}
goals: {ttft_p90: 1s, tpot_p90: 50ms}
predicted:
  usd_h: 26.32
  ttft_s: {p90: 0.71}
"""

names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
degrees = st.integers(1, 1024)
goals = st.builds(Goal, st.sampled_from(METRICS), st.sampled_from(STATISTICS), st.floats(1e-6, 1e6))
rates = st.none() | st.floats(1e-6, 1e6)
traces = st.builds(ServingLoad, trace=names, rate_per_s=rates, requests=st.integers(0, 10**6))
equal = st.builds(
    ServingLoad,
    rate_per_s=rates,
    input_tokens=st.integers(1, 10**6),
    output_tokens=st.integers(1, 10**6),
    requests=st.integers(1, 10**6),
    seed=st.integers(0, 2**62),
)
formats = st.sampled_from(FORMATS)
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
    dtype=formats,
    kv_dtype=st.just("") | formats,
    checkpoint=st.just("") | names,
    engine=st.builds(
        EngineChoice, name=names, version=st.just("") | names, settings=st.dictionaries(names, values, max_size=3)
    ),
    load=st.none() | traces | equal,
    goals=st.lists(goals, max_size=3, unique_by=lambda goal: goal.name).map(tuple),
    predicted=st.dictionaries(names, values, max_size=3),
    id=st.just("") | names,
)

recipes = st.builds(
    Recipe,
    micro_batch=st.integers(1, 64),
    schedule=st.sampled_from(list(SCHEDULES)),
    recompute=st.sampled_from(RECOMPUTE),
    zero=st.integers(0, 3),
    optimizer=st.sampled_from(OPTIMIZERS),
    sequence_parallel=st.booleans(),
)
training_plans = st.builds(
    Plan,
    model=names,
    chip=names,
    replicas=st.just(1),
    strategy=st.builds(Strategy, tp=degrees, pp=degrees, cp=degrees, dp=degrees, vp=degrees),
    dtype=formats,
    engine=st.builds(EngineChoice, name=names, settings=recipes.map(lambda recipe: recipe.settings)),
    load=st.builds(
        TrainingLoad,
        seq=st.integers(1, 2**20),
        global_batch=st.integers(1, 10**6),
        tokens=st.none() | st.floats(1, 1e15),
    ),
    predicted=st.dictionaries(names, values, max_size=3),
)


@given(plans | training_plans)
def test_a_plan_comes_back(plan: Plan) -> None:
    assert load.plan_from_dict(plan_to_dict(plan)) == plan
    assert load.plan_from_dict(json.loads(json.dumps(plan_to_dict(plan)))) == plan
    text = load.plan_to_yaml(plan)
    for read in (load.plan_from_dict, plan_from_file):
        assert read(parse_yaml(text, "plan.yaml"), "plan.yaml") == plan
    assert load.plan_to_yaml(load.plan_from_dict(parse_yaml(text, "plan.yaml"))) == text


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_no_number_in_json_comes_back_as_nothing(value: float) -> None:
    job = TrainingLoad(seq=1, global_batch=1, tokens=None)
    plan = Plan(
        model="m", chip="c", replicas=1, strategy=Strategy(), dtype="bf16", engine=EngineChoice(name="e"), load=job,
        predicted={"time_s": value},
    )  # fmt: skip
    assert load.plan_from_dict(plan_to_dict(plan)).predicted == {"time_s": None}


@given(st.floats(1e-9, 1e9) | st.sampled_from([0.05, 0.04, 1.0, 1 / 3, 0.0425, 2.5e-5, 60.0, 1e-3]))
def test_a_goal_comes_back_to_the_last_bit(seconds: float) -> None:
    assert parse_duration(duration_text(seconds)) == seconds


def test_files_that_gnomon_wrote_before_are_read_in_seconds(tmp_path: Path) -> None:
    old = TEXT.replace("{ttft_p90: 1s, tpot_p90: 50ms}", "{ttft_p90: 1.0, tpot_p90: 0.05}")
    (tmp_path / "old.yaml").write_text(old)
    assert load.read_plan(tmp_path / "old.yaml") == PLAN
    (tmp_path / "by-hand.yaml").write_text(old[: old.index("predicted:")])
    with pytest.raises(InputError, match=r"ttft_p90: 1\.0 has no unit\. Write '1\.0ms' or '1\.0s'"):
        load.read_plan(tmp_path / "by-hand.yaml")


@pytest.mark.parametrize("limit", [50, 0.05, np.float64(0.05), np.int64(3), True, None, [1]])
def test_goals_of_python_need_their_unit(limit: Any) -> None:
    with pytest.raises(InputError, match=r"slo, tpot_p90: .*(has no unit|is not a duration)"):
        goals_of({"tpot_p90": limit})
    assert goals_of({"tpot_p90": "50ms"}) == goals_of([Goal("tpot", "p90", 0.05)]) == goals_of("tpot_p90=50ms")


def test_a_cache_left_to_the_engine() -> None:
    for text in (TEXT.replace("kv_dtype: bf16\n", ""), TEXT.replace("kv_dtype: bf16", "kv_dtype: auto")):
        assert load.plan_from_dict(parse_yaml(text, "plan.yaml")).kv_dtype == ""


def test_the_text_is_small_and_fixed(tmp_path: Path) -> None:
    load.write_plan(PLAN, tmp_path / "plan.yaml")
    assert (tmp_path / "plan.yaml").read_text() == TEXT
    assert load.read_plan(tmp_path / "plan.yaml") == PLAN


def test_a_hand_written_plan_may_be_short() -> None:
    text = TEXT[: TEXT.index("load:")] + "goals: {ttft_p90: 1s, tpot_p90: 50ms}\n"
    plan = load.plan_from_dict(parse_yaml(text, "plan.yaml"))
    assert plan.goals == PLAN.goals
    assert plan.load is None


TRAINING = """\
schema: gnomon.plan/1
model: llama-3.1-8b
chip: H100-SXM-80GB
replicas: 1
strategy: {tp: 2, pp: 4, ep: 1, cp: 1, dp: 2, vp: 2}
dtype: bf16
engine:
  name: megatron
  settings: {micro_batch: 2, schedule: interleaved, recompute: full, zero: 1, optimizer: adamw, sequence_parallel: true}
load: {seq: 4096, global_batch: 64, tokens: 1000000000.0}
"""


def training(text: str = TRAINING) -> Plan:
    return load.plan_from_dict(parse_yaml(text, "plan.yaml"), "plan.yaml")


def test_a_training_plan_is_small_and_fixed() -> None:
    plan = training()
    assert plan.load == TrainingLoad(seq=4096, global_batch=64, tokens=1e9)
    assert plan.strategy == Strategy(tp=2, pp=4, dp=2, vp=2)
    assert plan.kv_dtype == ""
    recipe = Recipe(micro_batch=2, schedule="interleaved", recompute="full", zero=1)
    assert recipe_of(plan.engine.settings) == recipe
    assert load.plan_to_yaml(plan) == TRAINING


def test_a_training_plan_may_be_short() -> None:
    text = TRAINING[: TRAINING.index("engine:")] + "engine: {name: torch}\nload: {seq: 4096, global_batch: 64}\n"
    plan = training(text.replace(", vp: 2", ""))
    assert plan.strategy.vp == 1
    assert recipe_of(plan.engine.settings) == Recipe()
    assert plan.load == TrainingLoad(seq=4096, global_batch=64)


def test_the_documented_training_plan_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    plan = training(page[page.index("schema: gnomon.plan/1\n") :].partition("```")[0])
    assert plan.load == TrainingLoad(seq=4096, global_batch=64, tokens=3e11)
    assert recipe_of(plan.engine.settings) == Recipe(schedule="interleaved", zero=1)


@pytest.mark.parametrize("written", ["300e9", "300B", "3.0e+11", "300000000000"])
def test_tokens_as_they_are_written(written: str) -> None:
    plan = training(TRAINING.replace("1000000000.0", written))
    assert isinstance(plan.load, TrainingLoad)
    assert plan.load.tokens == 3e11


@given(recipes)
def test_a_recipe_comes_back(recipe: Recipe) -> None:
    settings = recipe.settings
    names = ["micro_batch", "schedule", "recompute", "zero", "optimizer", "sequence_parallel", "cp_comm", "expert_tp"]
    assert list(settings) == names + ["layers_per_stage"] * bool(recipe.layers_per_stage)
    assert recipe_of(settings) == recipe


BROKEN = {
    "no-batch": ("global_batch: 64, ", "", "field load.global_batch: is missing"),
    "no-seq": ("seq: 4096, ", "", "field load.seq: is missing"),
    "seq-zero": ("seq: 4096", "seq: 0", "field load.seq: 0 is not a positive whole number"),
    "batch-text": ("global_batch: 64", "global_batch: many", "field load.global_batch: 'many'"),
    "tokens-zero": ("1000000000.0", "0", "field load.tokens: 0 is not a number above zero"),
    "tokens-word": ("1000000000.0", "all", "field load.tokens: 'all' is not a count"),
    "tokens-list": ("1000000000.0", "[1]", "field load.tokens: '[1]' is not a count"),
    "tokens-endless": ("1000000000.0", "1" + "0" * 400, "field load.tokens"),
    "serving-field": ("seq: 4096", "seq: 4096, rate_per_s: 3", "field load.rate_per_s: unknown field"),
    "load-typo": ("tokens:", "token:", "field load.token: unknown field. Did you mean 'tokens'?"),
    "vp-zero": ("vp: 2", "vp: 0", "field strategy.vp: 0"),
    "no-engine": ("name: megatron", "version: '1'", "field engine.name: is missing"),
    "settings-list": ("settings: {", "settings: [1] #", "field engine.settings: [1] is not a mapping"),
    "unknown-setting": ("zero: 1", "zeros: 1", "field engine.settings.zeros: unknown field. Did you mean 'zero'?"),
    "schedule": ("schedule: interleaved", "schedule: 1f1", "settings.schedule: unknown schedule '1f1'. Near: 1f1b"),
    "recompute": ("recompute: full", "recompute: fulll", "unknown recomputation 'fulll'. Near: full"),
    "recompute-true": ("recompute: full", "recompute: yes", "field engine.settings.recompute: True is not a text"),
    "optimizer": ("optimizer: adamw", "optimizer: adam", "unknown optimizer 'adam'. Near: adamw"),
    "zero-four": ("zero: 1", "zero: 4", "field engine.settings.zero: 4 is more than 3"),
    "zero-true": ("zero: 1", "zero: on", "field engine.settings.zero: True is not a whole number"),
    "micro-zero": ("micro_batch: 2", "micro_batch: 0", "field engine.settings.micro_batch: 0"),
    "sequence": (
        "sequence_parallel: true",
        "sequence_parallel: 1",
        "settings.sequence_parallel: 1 is not true or false",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_training_plans(case: str) -> None:
    old, new, said = BROKEN[case]
    assert old in TRAINING
    with pytest.raises(InputError) as caught:
        training(TRAINING.replace(old, new))
    assert said in str(caught.value)
    assert str(caught.value).startswith("plan.yaml")
    assert "\n" not in str(caught.value)


def test_serving_plans_know_no_virtual_stages() -> None:
    with pytest.raises(InputError, match=r"strategy\.vp: unknown field"):
        training(TEXT.replace("dp: 1}", "dp: 1, vp: 2}"))


def test_context_parallel_ranks_of_serving_take_no_chips_of_their_own() -> None:
    plan = training(TEXT.replace("cp: 1", "cp: 2"))
    assert (plan.strategy.cp, plan.ranks, plan.chips) == (2, 4, 8)
    learns = training(TRAINING.replace("cp: 1", "cp: 2"))
    assert (learns.ranks, learns.chips) == (32, 32)


def test_figures_of_any_kind_become_plain() -> None:
    predicted = {"a": np.float64(1.5), "b": (1, np.int64(2)), "c": Estimate.exact(3.0, "x"), "d": np.arange(2)}
    plain: dict[str, Any] = plan_to_dict(Plan(**_fields() | {"predicted": predicted}))["predicted"]
    assert plain["b"] == [1, 2]
    assert plain["c"]["value"] == 3.0
    assert json.dumps(plain)


def test_a_plan_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        load.write_plan(PLAN, tmp_path / "no" / "such" / "folder.yaml")


def _fields() -> dict[str, Any]:
    return {name: getattr(PLAN, name) for name in Plan.__dataclass_fields__}


@pytest.mark.parametrize("limit", [".nan", ".inf", "-.inf", "true"])
def test_a_goal_that_is_no_duration_is_not_offered_a_unit(limit: str) -> None:
    text = TEXT.replace("ttft_p90: 1s", f"ttft_p90: {limit}")
    with pytest.raises(InputError, match=r"ttft_p90: .* is not a duration"):
        plan_from_file({**parse_yaml(text, "plan.yaml"), "predicted": {}}, "plan.yaml")


@pytest.mark.parametrize("limit", ["1e30s", "1e308s", "1e28d"])
def test_a_goal_beyond_all_bounds_is_told_the_bound(limit: str) -> None:
    with pytest.raises(InputError, match=r"too large for a duration: it has to be below 1e\+30"):
        goals_of({"ttft_p90": limit})
