"""Tapes priced: each operator as alone, passes as the sums of their operators, collectives hidden behind products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.cost.machines import machine

from gnomon.cost import tapes
from gnomon.cost.collective import sm_contention
from gnomon.cost.machine import COLLECTIVES
from gnomon.engines.megatron.style import fused, parted
from gnomon.engines.training.layer_cost import ops_of
from gnomon.graph.layers import Cut, embedding, head, layer
from gnomon.graph.ops import Attention, Collective, Gemm, Op
from gnomon.graph.tape import Tape, TapeNode
from gnomon.load import model as load_model
from gnomon.spec import Batch
from gnomon.spec.workload import Floats

MODEL = load_model("gpt-1.7b")
ON = replace(machine("H200", 8), framework="torch")
BATCH = Batch.prefill(np.array([1, 2, 5]), 1024)
CUT = Cut(seq=1024, tp=4, sequence_parallel=True)
STYLES = {"fused": fused(), "parted": parted(True, "fp32"), "nothing hidden": parted(False, "bf16")}


def a_layer(style: str = "fused", cut: Cut = CUT) -> Tape:
    return layer(MODEL, MODEL.blocks[0], cut, STYLES[style])


def priced(tape: Tape) -> dict[Op, Floats]:
    return tapes.price(ops_of([{"": tape}]), ON, BATCH)


@pytest.mark.parametrize("style", STYLES)
def test_all_at_once_costs_what_each_costs_alone(style: str) -> None:
    parts = [maker(MODEL, CUT, STYLES[style]) for maker in (embedding, head)] + [a_layer(style)]
    ops = [op for tape in parts for op in ops_of([{"": tape}])]
    found = tapes.price(ops, ON, BATCH)
    assert set(found) == set(ops)
    for op, seconds in found.items():
        np.testing.assert_allclose(seconds, ON.op_seconds(op, BATCH), rtol=1e-13, err_msg=op.name)
        assert np.all((seconds > 0) == (op.bytes(BATCH) > 0)), op.name


def test_a_factor_multiplies_its_operator() -> None:
    ops = ops_of([{"": a_layer()}])
    plain = tapes.price(ops, ON, BATCH)
    drawn = tapes.price(ops, ON, BATCH, lambda op: np.array([1.0, 2.0, 3.0]) if op.kind == "gemm" else 1.0)
    for op in ops:
        times = np.array([1.0, 2.0, 3.0]) if op.kind == "gemm" else np.ones(3)
        np.testing.assert_allclose(drawn[op], plain[op] * times, rtol=1e-13)


@pytest.mark.parametrize("mode", ["none", "selective", "full"])
@pytest.mark.parametrize("style", STYLES)
def test_a_pass_is_the_sum_of_its_operators(style: str, mode: str) -> None:
    tape = a_layer(style)
    times = priced(tape)
    for found, ops in (
        (tapes.forward(tape, times, BATCH), tape.forward_ops()),
        (tapes.backward(tape, mode, times, BATCH), tape.backward_ops(mode)),
    ):
        compute = [op for op in ops if isinstance(op, (Gemm, Attention))]
        stream = [op for op in ops if op.kind == "elementwise"]
        np.testing.assert_allclose(found.compute_s, sum(times[op] for op in compute))
        np.testing.assert_allclose(found.stream_s, sum(times[op] for op in stream))
        np.testing.assert_allclose(found.flops, sum(op.count * op.flops(BATCH) for op in compute))
        np.testing.assert_allclose(found.compute_bytes, sum(op.count * op.bytes(BATCH) for op in compute))
        np.testing.assert_allclose(found.stream_bytes, sum(op.count * op.bytes(BATCH) for op in stream))
        attention = [op.count * op.flops(BATCH) for op in compute if isinstance(op, Attention)]
        np.testing.assert_allclose(found.attention_flops, sum(attention) if attention else 0.0)
        assert found.kernels == sum(op.count for op in ops)
        assert np.all(found.exposed_s >= 0)
        assert np.all(found.exposed_s <= sum(times[op] for op in ops if op.kind in COLLECTIVES) * (1 + 1e-12))


def test_nothing_hides_forward_nor_without_overlap() -> None:
    for style in STYLES:
        tape = a_layer(style)
        times = priced(tape)
        wire = sum(times[op] for op in tape.forward_ops() if op.kind in COLLECTIVES)
        np.testing.assert_allclose(tapes.forward(tape, times, BATCH).exposed_s, wire)
    tape = a_layer("nothing hidden")
    times = priced(tape)
    wire = sum(times[op] for op in tape.backward_ops("none") if op.kind in COLLECTIVES)
    np.testing.assert_allclose(tapes.backward(tape, "none", times, BATCH).exposed_s, wire)


GATHER, SCATTER, OUT = (
    Collective(name=name, op=op, rows=1, bytes_per_row=1.0, ranks=2)  # type: ignore[arg-type]
    for name, op in (("again", "all_gather"), ("scatter", "reduce_scatter"), ("leave", "all_gather"))
)
PRODUCTS = [Gemm(name=name, m=1, n=1, k=1, dtype="bf16") for name in ("up", "up.by_input", "up.by_weight")]
SMALL = Tape(
    name="small",
    nodes=(
        TapeNode(name="enter", dgrad=(GATHER, SCATTER), beside=("up", "gate")),
        TapeNode(name="up", forward=PRODUCTS[:1], dgrad=PRODUCTS[1:2], wgrad=PRODUCTS[2:]),  # type: ignore[arg-type]
        TapeNode(name="leave", dgrad=(OUT,)),
    ),
    sizes={},
)


@pytest.mark.parametrize(
    ("gather", "scatter", "by_input", "by_weight", "exposed"),
    [
        (1.0, 2.0, 5.0, 5.0, 0.0),  # both are shorter than the products beside them
        (7.0, 2.0, 5.0, 5.0, 2.0),  # the gather outlasts the product by input
        (1.0, 9.0, 5.0, 4.0, 5.0),  # the sum outlasts the product by weight; it cannot hide behind the other
        (7.0, 9.0, 0.0, 0.0, 16.0),
    ],
)
def test_collectives_overlap_with_their_own_gemms(
    gather: float, scatter: float, by_input: float, by_weight: float, exposed: float
) -> None:
    seconds: dict[Op, float] = {GATHER: gather, SCATTER: scatter, OUT: 0.5, PRODUCTS[0]: 3.0}
    seconds |= {PRODUCTS[1]: by_input, PRODUCTS[2]: by_weight}
    times = {op: np.array([value]) for op, value in seconds.items()}
    found = tapes.backward(SMALL, "none", times, Batch.prefill(1, 1))
    # What leaves has nothing beside it.
    assert found.exposed_s.tolist() == [exposed + 0.5]
    assert found.compute_s.tolist() == [by_input + by_weight]


def test_what_hides_takes_processors_from_what_it_hides_behind() -> None:
    """A part of its time shows all the same, the larger the fewer processors there are."""
    seconds = {GATHER: 7.0, SCATTER: 2.0, OUT: 0.0, PRODUCTS[0]: 3.0, PRODUCTS[1]: 5.0, PRODUCTS[2]: 5.0}
    times: dict[Op, Floats] = {op: np.array([value]) for op, value in seconds.items()}  # type: ignore[misc]
    found = tapes.backward(SMALL, "none", times, Batch.prefill(1, 1), 0.25)
    # Seven of nine seconds are hidden.
    assert found.exposed_s.tolist() == [2.0 + 0.25 * 7.0]
    shares = [sm_contention(processors) for processors in (16, 40, 108, 132, 1000)]
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[-1] < shares[0] <= 1


def test_a_lower_clock_stretches_arithmetic_alone() -> None:
    tape = a_layer()
    found = tapes.backward(tape, "full", priced(tape), BATCH)
    slower = found.seconds(np.array([1.5])) - found.seconds(np.array([1.0]))
    np.testing.assert_allclose(slower, 0.5 * found.compute_s)


def test_a_tape_without_collectives_exposes_none() -> None:
    tape = a_layer(cut=Cut(seq=1024))
    assert tapes.backward(tape, "none", priced(tape), BATCH).exposed_s.tolist() == [0.0]
