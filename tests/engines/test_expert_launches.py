"""What the host launches around experts under Megatron-LM, where it waits, and CUDA graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gnomon
from gnomon.cost import tapes
from gnomon.cost.machine import Machine
from gnomon.cost.tapes import TapeCost
from gnomon.engines import training_engine
from gnomon.engines.training.layer_cost import cut_of
from gnomon.errors import InputError
from gnomon.graph import layers
from gnomon.graph.tape import Tape
from gnomon.load import parse_pool
from gnomon.load.profiles import profile_for
from gnomon.spec import Batch, Model, MoeFfn
from gnomon.spec.answers import TrainingReport

QWEN, LLAMA = (gnomon.load.model(name) for name in ("qwen3-30b-a3b", "llama-3.2-1b"))
POOL = parse_pool("B200:8")
MACHINE = Machine(POOL, profile_for(POOL.chip), "torch")
STATIC = {"capacity_factor": 1.0, "pad_to_capacity": True}
GEMMS = 6
"""Of an expert: two matrices, each multiplied forward, for the gradient of its input, and for that of the weights."""


def layer_of(model: Model = QWEN, dtype: str = "bf16", engine: str = "megatron", **cut: Any) -> Tape:
    style = training_engine(engine).traits(model, dtype=dtype).on_chip(POOL.chip).style
    asked = replace(cut_of(4096, dtype), **({"ep": 8 if model.is_moe else 1} | cut))
    return layers.layer(model, model.blocks[-1], asked, style)


def passes(tape: Tape, tokens: int = 4096) -> tuple[TapeCost, TapeCost]:
    batch = Batch.prefill(1, tokens)
    times = tapes.price(tape.priced_ops(), MACHINE, batch)
    return tapes.forward(tape, times, batch), tapes.backward(tape, "none", times, batch)


def kernels(tape: Tape) -> int:
    return sum(one.kernels for one in passes(tape))


def step(**others: Any) -> TrainingReport:
    asked = {"on": "B200:8", "seq": 4096, "global_batch": 64, "ep": 8, "expert_tp": 1, "engine": "megatron@bridge"}
    return gnomon.simulate_training("qwen3-30b-a3b", **(asked | others))


@pytest.mark.parametrize("dtype", ["bf16", "mxfp8"])
def test_every_expert_has_gemms_and_casts_of_its_own(dtype: str) -> None:
    few, many = (kernels(layer_of(dtype=dtype, ep=ep)) for ep in (16, 8))
    casts = 0 if dtype == "bf16" else 4  # of both inputs and both gradients, in one kernel for both copies
    assert many - few == (16 - 8) * (GEMMS + casts)


def test_engines_with_a_grouped_gemm_launch_one() -> None:
    few, many = (kernels(layer_of(engine="torch", ep=ep)) for ep in (16, 8))
    assert few == many


def test_the_host_waits_before_experts_whose_rows_are_counted() -> None:
    def waited(**cut: Any) -> list[str]:
        return [node.name for node in layer_of(**cut).nodes if node.awaited]

    assert waited() == waited(dispatch="deepep") == ["ffn.dispatch"]
    assert waited(ep=1) == ["ffn.experts.up"]
    assert waited(**STATIC) == []
    assert waited(engine="torch") == []
    there, back = passes(layer_of())
    assert there.kernels > there.awaited_kernels > 0
    assert back.awaited_kernels == 0


@example(launch_s=3e-5, device=9e-3, share=0.3, before=40, after=200, slowdown=1.1)
@given(
    launch_s=st.floats(0, 1e-4), device=st.floats(0, 1e-2), share=st.floats(0, 1), before=st.integers(0, 300),
    after=st.integers(0, 300), slowdown=st.floats(1, 1.5),
)  # fmt: skip
def test_a_pass_takes_what_the_slower_of_device_and_host_does(
    launch_s: float, device: float, share: float, before: int, after: int, slowdown: float
) -> None:
    plain, *_ = passes(layer_of())
    cost = replace(
        plain, compute_s=np.array([device]), stream_s=np.zeros(1), exposed_s=np.zeros(1), kernels=before + after,
        awaited_s=np.array([share * device]), awaited_kernels=after,
    )  # fmt: skip
    factor = np.array([slowdown])
    found, ahead = (one.launched(factor, launch_s)[0] for one in (cost, replace(cost, awaited_kernels=0)))
    slack = 1 + 1e-12
    assert ahead == max(device * slowdown, (before + after) * launch_s)
    assert ahead <= found <= slack * (device * slowdown + (before + after) * launch_s)
    assert cost.launched(factor, 0.0)[0] == device * slowdown
    # No better than the kernels behind the wait, after those before it.
    assert found * slack >= (1 - share) * device + max(share * device, after * launch_s)


def test_rows_that_are_added_up_by_atomics_take_longer_and_move_as_much() -> None:
    def moved(name: str, **cut: Any) -> tuple[float, float, float]:
        tape, batch = layer_of(**cut), Batch.prefill(1, 4096)
        node = next(node for node in tape.nodes if node.name == name)
        times = tapes.price(tape.priced_ops(), MACHINE, batch)
        seconds = [float(sum(times[op] for op in ops)[0]) for ops in (node.forward, node.dgrad[:1])]
        return seconds[0], seconds[1], float(sum(op.bytes(batch) for op in node.forward)[0])

    (gathered, scattered, as_much), plain = moved("ffn.permute", **STATIC), moved("ffn.permute")
    assert (gathered, as_much) == (plain[0], plain[2])
    assert scattered > 5 * plain[1]
    (scattered, gathered, as_much), plain = moved("ffn.unpermute", **STATIC), moved("ffn.unpermute")
    assert (gathered, as_much) == (plain[1], plain[2])
    assert scattered > 5 * plain[0]


def test_graphs_hold_what_has_the_same_sizes_in_every_step() -> None:
    assert all(one.kernels == 0 for one in passes(layer_of(cuda_graphs=True, **STATIC)))
    assert all(one.kernels == 0 for one in passes(layer_of(LLAMA, cuda_graphs=True)))
    held = {node.name for node in layer_of(cuda_graphs=True).nodes if node.captured}
    assert {"attention.core", "ffn.router", "ffn.choose", "ffn.permute"} <= held
    assert not {"ffn.dispatch", "ffn.experts.up", "ffn.combine"} & held
    assert not any(node.captured for node in layer_of(**STATIC).nodes)


@pytest.mark.parametrize("others", [{}, STATIC, {"dtype": "mxfp8"}, {"dispatch": "deepep"}], ids=str)
def test_graphs_take_no_longer_and_change_nothing_but_time(others: dict[str, Any]) -> None:
    plain, replayed = step(**others), step(cuda_graphs=True, **others)
    assert replayed.step_time_s.value < plain.step_time_s.value
    assert replayed.peak_memory_bytes.value == plain.peak_memory_bytes.value
    assert replayed.step.flops == plain.step.flops


def test_a_host_that_is_ahead_gains_nothing_from_graphs() -> None:
    long = {"micro_batch": 8, **STATIC}
    assert step(cuda_graphs=True, **long).step_time_s.value == step(**long).step_time_s.value


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"engine": "torch"}, "without CUDA graphs"),
        ({"engine": "megatron@3.0", "model": "llama-3.2-1b", "ep": 1}, "without CUDA graphs"),
        ({"lengths": "lognormal:mean=200,cv=1"}, "sequences differ in length"),
        ({"recompute": "full"}, "recomputed in full"),
    ],
    ids=str,
)
def test_what_no_graph_holds(others: dict[str, Any], told: str) -> None:
    asked = {"on": "H100:8", "seq": 4096, "global_batch": 64, "ep": 8, "expert_tp": 1, "engine": "megatron"}
    model = others.pop("model", "qwen3-30b-a3b")
    with pytest.raises(InputError, match=told) as caught:
        gnomon.simulate_training(model, **(asked | others), cuda_graphs=True)
    assert caught.value.where == "--cuda-graphs"


def test_small_kernels_are_as_many_as_an_engine_says() -> None:
    (ffn,) = {block.ffn for block in QWEN.blocks}
    assert isinstance(ffn, MoeFfn)
    there, back = training_engine("megatron").traits(QWEN).style.routing_kernels
    assert min(there, back) > 0
    node = next(node for node in layer_of().nodes if node.name == "ffn.choose")
    assert (sum(op.count for op in node.forward), sum(op.count for op in node.dgrad)) == (1 + there, 1 + back)


def test_a_prediction_says_what_the_host_adds() -> None:
    def lines(**settings: Any) -> dict[str, tuple[float, str]]:
        asked = {"on": "B200", "phase": "train", "batch": 1, "tokens": 4096, "engine": "megatron"}
        found = gnomon.predict("qwen3-30b-a3b", **asked, settings=settings)
        assert sum(line.time_s.value for line in found.breakdown) == pytest.approx(found.time_s.value, rel=1e-6)
        return {line.op: (line.time_s.value, line.bound) for line in found.breakdown}

    seconds, bound = lines()["kernel launches"]
    assert (bound, seconds > 0.5) == ("host", True)
    assert "kernel launches" not in lines(cuda_graphs=True, **STATIC)


def test_atomics_follow_the_processors_of_a_chip_not_its_memory() -> None:
    own = training_engine("megatron").traits(QWEN)
    chips = [parse_pool(name).chip for name in ("H100", "H200", "B200")]
    seconds_of_a_byte = [1 / (own.on_chip(one).style.scattered * one.memory_bandwidth_bytes_s) for one in chips]
    assert seconds_of_a_byte == pytest.approx([1 / (own.atomic_bytes_s * one.sm_count) for one in chips])
    assert training_engine("torch").traits(QWEN).on_chip(chips[0]).style.scattered is None
