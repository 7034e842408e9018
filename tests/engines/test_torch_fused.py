"""Chains of memory-bound kernels as one: what they read and write by hand, and what ends a chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.engines.calls import call, traced

from gnomon.engines.torch.eager import lower
from gnomon.graph.ops import Elementwise, Op
from gnomon.spec.traced import Call, Storage, TensorSpec

BYTES = 2.0 * 1024 * 1024
"""Of one tensor here."""


def at(storage: int) -> TensorSpec:
    return TensorSpec(shape=(1024, 1024), stride=(1024, 1), dtype="bf16", item_bytes=2.0, storage=storage)


def relu(read: int, made: int) -> Call:
    return call("relu", (at(made),), self=at(read), pointwise=True)


def add(first: int, second: int, made: int) -> Call:
    return call("add", (at(made),), self=at(first), other=at(second), pointwise=True)


def product(read: int, made: int) -> Call:
    return call("mm", (at(made),), self=at(read), mat2=at(9))


def ops(*calls: Call, kept: tuple[int, ...] = (), fused: bool = True) -> list[Op]:
    """Storages die with the step, but for those that are kept."""
    held = tuple(Storage(bytes=BYTES, born=0, died=None if n in kept else len(calls)) for n in range(10))
    made = traced(*calls, storages=held)
    return [op for one in lower(made, fused=fused).launched for op in one.ops]


def moved(op: Any) -> tuple[float, float]:
    assert isinstance(op, Elementwise)
    return op.read_per_row / BYTES, op.written_per_row / BYTES


def test_a_chain_reads_what_was_there_and_writes_what_is_read_later() -> None:
    chain = (relu(0, 1), relu(1, 2), add(2, 5, 3))
    plain = ops(*chain, product(3, 4), fused=False)
    assert [moved(op) for op in plain[:3]] == [(1, 1), (1, 1), (2, 1)]
    fused, gemm = ops(*chain, product(3, 4))
    assert fused.name == "fused" and moved(fused) == (2, 1)
    assert gemm == plain[3]


def test_what_is_kept_or_read_again_is_written() -> None:
    assert moved(ops(relu(0, 1), relu(1, 2), kept=(2,))[0]) == (1, 1)
    assert moved(ops(relu(0, 1), relu(1, 2), kept=(1, 2))[0]) == (1, 2)
    first, _, last = ops(relu(0, 1), relu(1, 2), product(2, 3), add(1, 3, 4), kept=(4,))
    assert moved(first) == (1, 2) and moved(last) == (2, 1)


def test_in_place_kernels_write_what_they_change() -> None:
    change = call("relu_", (at(1),), self=at(1), changed=("self",), pointwise=True)
    assert moved(ops(relu(0, 1), change, kept=(1,))[0]) == (1, 1)
    assert moved(ops(change, kept=(1,))[0]) == (1, 1)


def test_strangers_and_lookups_end_a_chain() -> None:
    assert len(ops(relu(0, 1), relu(5, 6), kept=(1, 6))) == 2
    gather = call("index_select", (at(2),), self=at(1), index=at(5))
    assert [op.name for op in ops(relu(0, 1), gather, relu(2, 3), kept=(3,))] == ["pointwise", "gather", "pointwise"]


def test_views_and_empty_tensors_break_no_chain() -> None:
    view = call("view", (at(1),), self=at(1))
    empty = call("empty", (at(7),))
    assert len(ops(relu(0, 1), view, empty, relu(1, 2), kept=(2,))) == 1


def test_a_step_without_chains_moves_no_more_than_before() -> None:
    for made in ((product(0, 1),), (relu(0, 1), product(1, 2), relu(2, 3))):
        plain, fused = ops(*made, kept=(3,), fused=False), ops(*made, kept=(3,))
        total = [sum(sum(moved(op)) for op in each if isinstance(op, Elementwise)) for each in (plain, fused)]
        assert total[1] <= total[0]
        assert len(fused) == len(plain)


def test_what_a_convolution_adds_goes_with_the_chain_that_reads_it() -> None:
    x, weight, bias = (TensorSpec(shape=s, stride=(1,) * len(s), dtype="bf16", item_bytes=2.0, storage=n)
                       for n, s in ((5, (1, 8, 4, 4)), (6, (8, 8, 1, 1)), (7, (8,))))  # fmt: skip
    made = TensorSpec(shape=(1, 8, 4, 4), stride=(128, 16, 4, 1), dtype="bf16", item_bytes=2.0, storage=0)
    conv = call("convolution", (made,), {"groups": 1}, input=x, weight=weight, bias=bias)
    after = call("relu", (replace(made, storage=1),), self=made, pointwise=True)
    assert [op.name for op in ops(conv, after, kept=(1,), fused=False)] == ["conv", "broadcast", "pointwise"]
    assert [op.name for op in ops(conv, after, kept=(1,))] == ["conv", "pointwise"]
    assert [op.name for op in ops(conv, kept=(0,))] == ["conv", "broadcast"]


def test_forward_and_backward_are_kernels_apart() -> None:
    back = call("relu", (at(2),), self=at(1), pointwise=True, phase="backward")
    assert len(ops(relu(0, 1), back, kept=(2,))) == 2


@pytest.mark.parametrize("length", [2, 5, 20])
def test_a_longer_chain_costs_one_kernel_all_the_same(length: int) -> None:
    calls = [relu(n % 8, (n + 1) % 8) for n in range(length)]
    (only,) = ops(*calls, kept=(length % 8,))
    assert only.read_per_row == BYTES
