"""How tokens reach experts in training: capacity, imbalance, exchanges that send a token once, and their overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.cost import tapes, token_once
from gnomon.cost.machine import Machine
from gnomon.engines import training_engine
from gnomon.errors import InputError
from gnomon.graph import layers
from gnomon.graph.ops import Collective, Gemm
from gnomon.graph.routing import TokenRouting
from gnomon.graph.tape import Tape
from gnomon.load import parse_pool
from gnomon.load.profiles import profile_for
from gnomon.spec import Batch, MoeFfn
from gnomon.spec.answers import TrainingReport

QWEN = gnomon.load.model("qwen3-30b-a3b")
BATCH = Batch.prefill(1, 4096)
TOKENS, TOPK, HIDDEN, INNER, EXPERTS = 4096, 8, 2048, 768, 128


def layer_of(**cut: Any) -> Tape:
    style = training_engine("megatron").traits(QWEN).style
    return layers.layer(QWEN, QWEN.blocks[-1], layers.Cut(**({"seq": 4096, "ep": 8} | cut)), style)


def gemm_rows(tape: Tape) -> float:
    (gemm,) = next(node for node in tape.nodes if node.name == "ffn.experts.up").forward
    assert isinstance(gemm, Gemm)
    return float(gemm.flops(BATCH)[0] / (2 * HIDDEN * 2 * INNER))


def sent(tape: Tape) -> dict[str, float]:
    ops = (*tape.forward_ops(), *tape.backward_ops("none"))
    return {op.name: float(op.bytes(BATCH)[0]) for op in ops if isinstance(op, Collective)}


def step(**others: Any) -> TrainingReport:
    asked: dict[str, Any] = {"on": "H100:16", "seq": 4096, "global_batch": 128, "ep": 16, "zero": 1, "dtype": "bf16"}
    return gnomon.simulate_training("qwen3-30b-a3b", **(asked | {"engine": "megatron@bridge"} | others))


def figures(found: TrainingReport) -> tuple[float, float, float, float]:
    return found.step_time_s.value, found.peak_memory_bytes.value, float(found.energy_j), found.mfu


@pytest.mark.parametrize(
    ("cut", "rows", "copies"),
    [
        ({}, 1.0, 1.0),
        ({"capacity_factor": 0.5}, 0.5, 0.5),
        ({"capacity_factor": 1.25}, 1.0, 1.0),
        ({"capacity_factor": 1.25, "pad_to_capacity": True}, 1.25, 1.25),
        ({"imbalance": 1.5}, 1.5, 1.0),
        ({"imbalance": 1.5, "capacity_factor": 1.2}, 1.2, 1.0),
        ({"imbalance": 1.5, "ep": 1}, 1.0, 1.0),
    ],
    ids=str,
)
def test_rows_of_the_busiest_rank(cut: dict[str, Any], rows: float, copies: float) -> None:
    tape, all_copies = layer_of(**cut), TOKENS * TOPK
    assert gemm_rows(tape) == pytest.approx(rows * all_copies)
    permuted = next(node for node in tape.nodes if node.name == "ffn.permute").forward[0]
    assert permuted.bytes(BATCH)[0] == pytest.approx(2 * copies * all_copies * HIDDEN * 2)
    if cut.get("ep", 8) > 1:
        assert sent(tape)["ffn.dispatch"] == pytest.approx(rows * all_copies * HIDDEN * 2)


def test_a_capacity_that_nothing_exceeds_drops_nothing() -> None:
    plain = figures(step())
    assert figures(step(capacity_factor=8.0)) == plain
    padded = step(capacity_factor=1.0, pad_to_capacity=True)  # rows are added up by atomics there
    assert padded.peak_memory_bytes.value == plain[1]
    assert padded.mfu * padded.step_time_s.value == pytest.approx(plain[3] * plain[0], rel=1e-9)
    uneven = figures(step(imbalance=1.4))
    assert figures(step(imbalance=1.4, capacity_factor=8.0)) == uneven
    assert uneven[0] > plain[0]
    assert uneven[1] > plain[1]


@pytest.mark.parametrize("others", [{"imbalance": 1.5}, {"capacity_factor": 1.5, "pad_to_capacity": True}], ids=str)
def test_rows_of_no_token_are_no_useful_flops(others: dict[str, Any]) -> None:
    plain, more = step(), step(**others)
    useful = [found.mfu * found.step_time_s.value for found in (plain, more)]
    assert useful[0] == pytest.approx(useful[1], rel=1e-9)


def test_a_token_is_sent_once_to_each_rank() -> None:
    """Of 8 experts that a token visits of 128, on 8 ranks: 5.3 ranks of 8, and of the bytes of a copy for each expert
    as many, but for those that stay."""
    (ffn,) = {block.ffn for block in QWEN.blocks}
    assert isinstance(ffn, MoeFfn)
    routing = TokenRouting(experts=EXPERTS, topk=TOPK, groups=ffn.groups, topk_groups=ffn.topk_groups)
    tape = layer_of(dispatch="deepep")
    op = next(op for op in tape.forward_ops() if op.name == "ffn.dispatch")
    assert isinstance(op, Collective)
    far, near = token_once.volumes(op.bytes(BATCH), routing, 8, 1)
    assert far[0] == 0
    assert near[0] == pytest.approx(TOKENS * HIDDEN * 2 * routing.reached(8) * 7 / 8)
    assert 5 < routing.reached(8) < 6
    names = {node.name for node in tape.nodes}
    assert "ffn.permute" not in names
    assert gemm_rows(tape) == gemm_rows(layer_of())


def test_eight_bits_go_out_and_sixteen_come_back() -> None:
    wide, narrow = sent(layer_of(dispatch="deepep")), sent(layer_of(dispatch="deepep-fp8"))
    share = (1 + 4 / 128) / 2
    assert narrow["ffn.dispatch"] == pytest.approx(share * wide["ffn.dispatch"])
    assert narrow["ffn.combine.by_input"] == pytest.approx(share * wide["ffn.combine.by_input"])
    for name in ("ffn.combine", "ffn.dispatch.by_input"):
        assert narrow[name] == wide[name]


def test_ways_to_send_across_nodes() -> None:
    copies, usual, once, narrow = (step(dispatch=name) for name in ("alltoall", None, "deepep", "deepep-fp8"))
    seconds = [found.step_time_s.value for found in (copies, usual, once, narrow)]
    assert seconds == sorted(seconds, reverse=True)
    inside = {"on": "H100:8", "ep": 8}
    assert figures(step(dispatch="alltoall", **inside)) == figures(step(**inside))


@pytest.mark.parametrize("tokens", [256, 4096, 32768])
@pytest.mark.parametrize("cut", [{}, {"dispatch": "deepep"}, {"dispatch": "alltoall", "imbalance": 2.0}], ids=str)
def test_no_more_is_hidden_than_is_exchanged_or_computed(tokens: int, cut: dict[str, Any]) -> None:
    pool = parse_pool("H100:64")
    machine, tape = Machine(pool, profile_for(pool.chip), "torch"), layer_of(ep=64, **cut)
    batch = Batch.prefill(1, tokens)
    times = tapes.price(tape.priced_ops(), machine, batch)
    there, back = tapes.beside_other(tape, times)
    ops = (*tape.forward_ops(), *tape.backward_ops("none"))
    exchanged = {op.name: float(times[op][0]) for op in ops if op.kind == "all_to_all"}
    assert 0 < there[0] <= exchanged["ffn.dispatch"] + exchanged["ffn.combine"]
    assert 0 < back[0] <= exchanged["ffn.dispatch.by_input"] + exchanged["ffn.combine.by_input"]
    forward, backward = tapes.forward(tape, times, batch), tapes.backward(tape, "none", times, batch)
    work = forward.compute_s + forward.stream_s + backward.compute_s + backward.stream_s
    assert np.all(there + back <= work)


OVERLAPPED = ({}, {"pp": 2, "vp": 4, "ep": 8, "micro_batch": 2}, {"dispatch": "deepep"}, {"recompute": "selective"})


@pytest.mark.parametrize("others", OVERLAPPED, ids=str)
def test_overlap_gains_and_holds_a_layer_more(others: dict[str, Any]) -> None:
    plain, beside = step(**others), step(ep_overlap=True, **others)
    assert beside.step_time_s.value < plain.step_time_s.value
    without = plain.step_time_s.value - plain.exposed_communication_s
    assert beside.step_time_s.value >= without
    more = beside.peak_memory_bytes.value - plain.peak_memory_bytes.value
    assert 0 < more < 1e9


def test_one_micro_batch_has_no_other_to_run_beside() -> None:
    plain, beside = (step(global_batch=16, ep_overlap=on) for on in (False, True))
    assert beside.step_time_s.value == plain.step_time_s.value


@pytest.mark.parametrize(
    ("others", "told", "where"),
    [
        ({"imbalance": 0.5}, "is too small", "--imbalance"),
        ({"imbalance": 17.0}, "more than all tokens on 16 ranks", "--imbalance"),
        ({"pad_to_capacity": True}, "no capacity to pad to", "--pad-to-capacity"),
        ({"dispatch": "deepep", "tp": 2, "ep": 8}, "unsharded experts", "--dispatch"),
        ({"ep_overlap": True, "recompute": "full"}, "would recompute", "--ep-overlap"),
        ({"ep_overlap": True, "pp": 2, "ep": 8}, "the schedule is 1f1b", "--ep-overlap"),
        ({"dispatch": "hybrid"}, "unknown dispatch", "--dispatch"),
        ({"capacity_factor": 1e-9}, "not between 0.001 and 1,000", "--capacity-factor"),
        ({"capacity_factor": 1e25}, "not between 0.001 and 1,000", "--capacity-factor"),
        ({"dispatch": "deepep", "engine": "torch"}, "does not run it", "--dispatch"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(others: dict[str, Any], told: str, where: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        step(**others)
    assert caught.value.where == where
