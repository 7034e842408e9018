"""A lower power limit: slower, and with less power; what no board could hold is refused."""

from __future__ import annotations

import pytest

from gnomon.api.plan import plan_serving
from gnomon.api.predict import predict
from gnomon.api.simulate import simulate_serving
from gnomon.api.simulate_training import simulate_training
from gnomon.errors import InputError
from gnomon.load.plan import plan_from_dict
from gnomon.load.serving import task_of
from gnomon.spec.plan_dict import plan_to_dict

PREFILL = {"phase": "prefill", "tokens": 8192}
LOAD = {"rate": 12, "input": 1000, "output": 50, "requests": 200}


def test_predictions_follow_the_limit() -> None:
    burst = predict("llama-3.1-8b", on="H200", **PREFILL)
    free = predict("llama-3.1-8b", on="H200", sustained=True, **PREFILL)
    same = predict("llama-3.1-8b", on="H200", power_limit_w=700, **PREFILL)
    held = predict("llama-3.1-8b", on="H200", power_limit_w=400, **PREFILL)
    assert burst.clock_slowdown == 1
    assert burst.time_s.value < free.time_s.value < held.time_s.value
    assert same.time_s.value == free.time_s.value
    assert held.energy_j.value / held.time_s.value == pytest.approx(400, rel=0.02)
    assert held.energy_j.value < free.energy_j.value
    assert held.inputs["power_limit_w"] == 400
    assert held.inputs["sustained"] is True


@pytest.mark.parametrize(("limit", "says"), [(701, "above the 700 W"), (120, "lowest limit"), (-5, "-5"), (0, "0")])
def test_limits_out_of_range_are_refused(limit: float, says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        predict("llama-3.1-8b", on="H200", power_limit_w=limit)
    assert refused.value.where == "--power-limit"


def test_a_chip_whose_held_share_is_unknown_follows_a_limit() -> None:
    """Without one it keeps its clock."""
    free = predict("llama-3.1-8b", on="A100", sustained=True, **PREFILL)
    assert free.clock_slowdown == 1
    assert [one.option for one in free.not_modelled] == ["--sustained"]
    assert predict("llama-3.1-8b", on="A100", power_limit_w=250, **PREFILL).clock_slowdown > 1.2


def test_options_of_the_clock_are_refused_where_there_is_one_clock() -> None:
    with pytest.raises(InputError, match="always priced"):
        predict("llama-3.2-1b", on="H100", phase="train", tokens=512, sustained=True)


@pytest.mark.heavy
def test_a_served_load_follows_the_limit() -> None:
    free, held = (simulate_serving("llama-3.1-8b", on="H200", power_limit_w=limit, **LOAD) for limit in (None, 300))
    assert held.power_w < 300 < free.power_w
    assert held.tpot_s["p50"] > 1.1 * free.tpot_s["p50"]
    assert held.clock_slowdown > free.clock_slowdown
    assert held.saturation_rps < free.saturation_rps


def test_training_follows_the_limit() -> None:
    job = {"on": "H200:8", "seq": 4096, "global_batch": 64, "tp": 2, "zero": 1}
    free, held = (simulate_training("llama-3.1-8b", power_limit_w=limit, **job) for limit in (None, 450))
    assert held.step_time_s.value > 1.1 * free.step_time_s.value
    assert held.energy_j < free.energy_j
    assert held.plan.power_limit_w == 450


@pytest.mark.heavy
def test_a_plan_keeps_its_limit() -> None:
    goals = {"slo": "ttft_p90=2s", "settings": {"max_num_seqs": 64, "max_num_batched_tokens": 2048}}
    found = plan_serving("llama-3.1-8b", fleet="H200:1", dtypes=["bf16"], power_limit_w=350, **LOAD, **goals)
    plan = found.best.plan
    assert found.best.power_w < 350
    assert plan.power_limit_w == 350
    again = plan_from_dict(plan_to_dict(plan))
    assert again.power_limit_w == 350
    (binding,) = task_of(again).bindings.values()
    assert binding.pool.chip.tdp_w == 350
