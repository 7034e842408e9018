"""Parallel degrees under vLLM: what is refused and what is near it, how ranks are laid out, and what a step costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.cost.ranked import RankStep
from gnomon.engines.vllm.degrees import CONTEXT, sequence_parallel_moe
from gnomon.errors import InputError
from gnomon.graph import Collective, Experts
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Batch, Strategy


def deployed(name: str, on: str = "H200:64", settings: dict[str, Any] | None = None, **degrees: int) -> Any:
    return deploy(load_model(name), parse_pool(on), strategy=Strategy(**degrees), settings=settings)


REFUSED = {
    "some of the ranks": ("qwen3-30b-a3b", {"tp": 8, "ep": 4}, "ep", "--ep 8, or 1"),
    "more than the ranks": ("qwen3-30b-a3b", {"tp": 2, "dp": 2, "ep": 8}, "ep", "--ep 4, or 1"),
    "no experts": ("llama-3.1-8b", {"tp": 8, "ep": 8}, "ep", "Leave --ep out"),
    "more ranks than experts": ("mixtral-8x7b", {"dp": 16, "ep": 16}, "ep", "8 or fewer"),
    "all at once": ("qwen3-30b-a3b", {"tp": 2, "pp": 2, "dp": 2, "ep": 4}, "pp", "--pp 1 with --dp 4 --ep 8"),
    "more stages than layers": ("llama-3.1-8b", {"pp": 33}, "pp", "at most 32"),
    "no key-value head twice": ("llama-3.1-8b", {"tp": 8, "cp": 2}, "cp", "Possible here: 1"),
    "not so many of one head": ("llama-3.1-70b", {"tp": 32, "cp": 8}, "cp", "Possible here: 1, 2, 4"),
    "a cache of windows": ("mistral-7b-v0.1", {"tp": 16, "cp": 2}, "cp", "whole context"),
    "widths cut too thin": ("qwen3-30b-a3b", {"tp": 4, "dp": 5}, "tp", "nearest"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_what_is_near(case: str) -> None:
    name, degrees, where, near = REFUSED[case]
    with pytest.raises(InputError) as caught:
        deployed(name, **degrees)
    assert caught.value.where.lstrip("-") == where
    assert near in caught.value.hint


def test_context_parallelism_is_a_setting_and_takes_no_chips() -> None:
    _, deployment = deployed("llama-3.1-70b", "H200:16", tp=16, cp=2)
    assert (deployment.strategy.ranks, deployment.settings[CONTEXT]) == (16, 2)
    _, same = deployed("llama-3.1-70b", "H200:16", {CONTEXT: 2}, tp=16)
    assert same.settings == deployment.settings
    with pytest.raises(InputError, match="differ"):
        deployed("llama-3.1-70b", "H200:16", {CONTEXT: 4}, tp=16, cp=2)


def test_a_shared_cache_holds_more() -> None:
    settings = {"max_model_len": 65536}
    engine, shared = deployed("llama-3.1-70b", "H200:16", settings, tp=16, cp=2)
    _, plain = deployed("llama-3.1-70b", "H200:16", settings, tp=16)
    tokens = [limits.kv_blocks * limits.block_tokens for limits in (engine.limits(shared), engine.limits(plain))]
    assert tokens[0] == 2 * tokens[1]
    assert engine.memory(shared).kv_bytes_per_token == engine.memory(plain).kv_bytes_per_token / 2
    assert engine.cost_key(shared) != engine.cost_key(plain)


@pytest.mark.parametrize(
    ("name", "degrees", "parted"),
    [
        ("qwen3-30b-a3b", {"tp": 2, "dp": 4, "ep": 8}, True),
        ("mixtral-8x7b", {"tp": 2, "dp": 4, "ep": 8}, False),
        ("qwen3-30b-a3b", {"tp": 8, "ep": 8}, False),
        ("qwen3-30b-a3b", {"dp": 8, "ep": 8}, False),
        ("qwen3-30b-a3b", {"tp": 2, "dp": 4}, False),
    ],
)
def test_which_models_part_their_tokens(name: str, degrees: dict[str, int], parted: bool) -> None:
    assert sequence_parallel_moe(load_model(name), Strategy(**degrees)) == parted
    engine, deployment = deployed(name, **degrees)
    joined = [op.name for op in engine.graph(deployment).ops if op.name in ("ffn.all_reduce", "ffn.all_gather")]
    assert joined == (["ffn.all_gather"] if parted else ["ffn.all_reduce"] if degrees.get("tp", 1) > 1 else [])


def test_one_stage_is_the_graph() -> None:
    engine, deployment = deployed("qwen3-30b-a3b", tp=4)
    (stage,) = engine.stages(deployment)
    assert stage.graph == engine.graph(deployment)
    assert stage.layers == 48


@pytest.mark.parametrize("pp", [2, 3, 8])
def test_a_step_walks_all_stages(pp: int) -> None:
    engine, deployment = deployed("qwen3-30b-a3b", tp=2, pp=pp)
    _, whole = deployed("qwen3-30b-a3b", tp=2)
    batch, stages = Batch.decode(32, 1000), engine.stages(deployment)
    walk = engine.graph(deployment)
    assert sum(stage.layers for stage in stages) == 48
    assert walk.flops(batch)[0] == pytest.approx(engine.graph(whole).flops(batch)[0], rel=1e-12)
    assert sum(float(stage.graph.bytes(batch)[0]) for stage in stages) == pytest.approx(walk.bytes(batch)[0])
    passed = [op for op in walk.ops if isinstance(op, Collective) and op.name.startswith("pipeline.")]
    assert sum(op.count for op in passed if op.op == "send_recv") == pp - 1
    assert sum(op.count for op in passed if op.op == "all_gather") == pp - 1


def test_stages_on_other_nodes_are_reached_over_the_network() -> None:
    engine, deployment = deployed("llama-3.1-70b", "H200:16", tp=4, pp=4)
    sends = [op for op in engine.graph(deployment).ops if isinstance(op, Collective) and op.op == "send_recv"]
    assert sorted((op.stride, op.count) for op in sends) == [(4, 2), (8, 1)]
    batch, machine = Batch.prefill(1, 8192), engine.step_model(deployment).machine
    near, far = (machine.op_seconds(op, batch)[0] / op.count for op in sorted(sends, key=lambda op: op.stride))
    assert far > 3 * near


def test_a_pipeline_is_no_quicker_for_one_batch_and_holds_more() -> None:
    words = {"phase": "decode", "batch": 64, "context": 2000}
    one = gnomon.predict("llama-3.1-70b", on="H200:4", **words)
    piped = gnomon.predict("llama-3.1-70b", on="H200:8", pp=2, **words)
    assert piped.time_s.value >= one.time_s.value
    pipeline = piped.parallel["pipeline"]
    assert pipeline["layers"] == [40, 40]
    assert 0.45 * one.time_s.value < pipeline["busiest_stage_s"] < 0.65 * one.time_s.value
    assert pipeline["busiest_stage_s"] == max(pipeline["stage_s"])
    assert pipeline["most_tokens_per_s"] == pytest.approx(64 / pipeline["busiest_stage_s"])
    assert one.energy_j.value < piped.energy_j.value < 2 * one.energy_j.value
    assert one.parallel == {}


def test_data_parallel_ranks_share_the_batch() -> None:
    """Of a dense model each is a replica: the step of its share, at the price of all."""
    alone = gnomon.predict("llama-3.1-8b", on="H200", batch=32, context=1000)
    eight = gnomon.predict("llama-3.1-8b", on="H200:8", dp=8, batch=256, context=1000)
    assert eight.time_s.value == alone.time_s.value
    assert eight.tokens_per_s == 8 * alone.tokens_per_s
    assert eight.cost_usd.value == pytest.approx(8 * alone.cost_usd.value)
    assert eight.energy_j.value == pytest.approx(8 * alone.energy_j.value)
    uneven = gnomon.predict("llama-3.1-8b", on="H200:8", dp=8, batch=250, context=1000)
    assert uneven.time_s.value == alone.time_s.value
    assert uneven.tokens_per_s == pytest.approx(eight.tokens_per_s * 250 / 256)


def test_experts_see_the_tokens_of_all() -> None:
    engine, deployment = deployed("qwen3-30b-a3b", dp=8, ep=8)
    (experts,) = [op for op in engine.graph(deployment).ops if isinstance(op, Experts)]
    batch = Batch.decode(16, 100)
    assert experts.flops(batch)[0] == 6 * 16 * 8 * 2048 * 768
    found = gnomon.predict("qwen3-30b-a3b", on="H200:8", dp=8, ep=8, batch=128, context=100).parallel["experts"]
    assert (found["ranks"], found["held"]) == (8, 16)
    assert found["busiest_over_mean"] == pytest.approx(experts.imbalance(batch)[0])


def test_a_prompt_on_one_rank_does_not_stand_for_all() -> None:
    """Steps larger than any captured one are not padded to the busiest rank's size; captured ones are."""

    def gathered(batch: int, tokens: int) -> float:
        words = {"phase": "prefill", "batch": batch, "tokens": tokens}
        found = gnomon.predict("qwen3-30b-a3b", on="H200:8", dp=8, ep=8, **words)
        (line,) = [line for line in found.breakdown if line.op == "ffn.combine"]
        return line.bytes / (48 * 2048 * 2)

    assert gathered(1, 4000) == pytest.approx(4000)
    assert gathered(8, 4000) == pytest.approx(8 * 4000)
    assert gathered(12, 4000) == pytest.approx(12 * 4000)
    assert gathered(1, 100) == pytest.approx(8 * 100)


def test_a_pipeline_of_data_parallel_ranks_is_not_simulated() -> None:
    with pytest.raises(InputError, match="not simulated") as caught:
        gnomon.simulate_serving("qwen3-30b-a3b", on="H200:4", rate=1, input=100, output=10, pp=2, dp=2)
    assert caught.value.where == "--pp"
    assert "gnomon predict" in caught.value.hint


def test_a_request_alone_passes_through_the_stages_as_one_step_is_predicted_to() -> None:
    engine, deployment = deployed("llama-3.1-70b", "H100:16", tp=8, pp=2)
    cost = engine.step_cost(deployment)
    shown = gnomon.predict("llama-3.1-70b", on="H100:16", tp=8, pp=2, batch=64, context=2000)
    stages = shown.parallel["pipeline"]
    curves = [stage.decode_curve(64) for stage in cost.stages]
    times = [float(np.interp(2000, curve.context, curve.seconds)) for curve in curves]
    assert times == pytest.approx(stages["stage_s"], rel=1e-3)
    assert engine.limits(deployment).stages == 2
    alone = gnomon.simulate_serving("llama-3.1-70b", on="H100:16", tp=8, pp=2, rate=1, requests=1, input=100, output=9)
    one = gnomon.predict("llama-3.1-70b", on="H100:16", tp=8, pp=2, batch=1, context=104)
    assert alone.run.tpot_s[0] > one.time_s.value, "and the loop sleeps for a millisecond before each"
    assert alone.run.tpot_s[0] == pytest.approx(one.time_s.value + 1e-3, rel=0.1)


@pytest.mark.parametrize(
    ("model", "settings", "where"),
    [
        ("llama-3.1-8b", {}, "--dp"),
        ("qwen3-30b-a3b", {"kv_offloading_size": 8}, "setting kv_offloading_size"),
        ("qwen3-30b-a3b", {"scheduling_policy": "priority"}, "setting scheduling_policy"),
    ],
)
def test_what_data_parallel_ranks_are_not_simulated_with(model: str, settings: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as caught:
        gnomon.simulate_serving(model, on="H200:2", rate=1, input=100, output=10, dp=2, settings=settings)
    assert caught.value.where == where


def test_a_step_of_equal_ranks_costs_what_one_step_is_predicted_to() -> None:
    engine, deployment = deployed("qwen3-30b-a3b", "H200:8", dp=8, ep=8)
    cost = engine.step_cost(deployment)
    for each in (16, 700):  # captured, and beyond
        size = cost.size_of([each] * 8)
        curve = cost.rank_curve(each, size)
        shown = gnomon.predict("qwen3-30b-a3b", on="H200:8", dp=8, ep=8, batch=8 * each, context=int(curve.context[-1]))
        assert curve.seconds[-1] == pytest.approx(shown.time_s.value, rel=1e-6)
    even, more = [RankStep(0, 0, [(3000, 0)], 3000)] * 8, [RankStep(0, 0, [(3000, 0)], 3000)] * 4
    prompts = gnomon.predict("qwen3-30b-a3b", on="H200:8", dp=8, ep=8, batch=8, phase="prefill", tokens=3000)
    device = sum(line.time_s.value for line in prompts.breakdown if line.op != "engine")
    assert cost.group_work(even)[0] == pytest.approx(device, rel=0.02)
    assert cost.group_work(more)[0] < 0.999 * cost.group_work(even)[0], "experts get half the tokens"
    assert cost.group_work(more[:1])[0] == cost.mixed(0, 0, [(3000, 0)])


def test_spread_experts_are_simulated_as_they_are_predicted() -> None:
    engine, deployment = deployed("qwen3-30b-a3b", "H200:8", tp=8, ep=8)
    curve = engine.step_cost(deployment).decode_curve(64)
    shown = gnomon.predict("qwen3-30b-a3b", on="H200:8", ep=8, batch=64, context=int(curve.context[-1]))
    assert curve.seconds[-1] == pytest.approx(shown.time_s.value, rel=1e-9)


def test_without_a_tensor_parallel_degree_all_chips_are_taken() -> None:
    assert gnomon.predict("qwen3-30b-a3b", on="H200:8", ep=8).inputs["tp"] == 8
    assert gnomon.predict("qwen3-30b-a3b", on="H200:8", dp=4, ep=8).inputs["tp"] == 2
    assert gnomon.predict("llama-3.1-70b", on="H200:16", cp=2).inputs["tp"] == 16


def test_inputs_ask_the_same_again() -> None:
    first = gnomon.predict("qwen3-30b-a3b", on="H200:8", dp=4, ep=8, batch=64, context=500)
    inputs = dict(first.inputs)
    assert gnomon.predict(**inputs).time_s.value == first.time_s.value  # type: ignore[arg-type]


def test_equal_ranks_have_equal_limits() -> None:
    """So that a planner simulates them once."""
    engine, one = deployed("qwen3-30b-a3b", "H200:4", dp=4, ep=4)
    _, other = deployed("qwen3-30b-a3b", "H200:4", dp=4, ep=4)
    assert engine.limits(one).ranks == 4
    assert engine.limits(one) == engine.limits(other)
