"""Attention over documents of unequal length in one kernel, forward and backward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cost.machines import machine
from tests.examples import examples

from gnomon.graph.core import BLOCK, CoreAttention
from gnomon.graph.windows import Window
from gnomon.spec import Batch
from gnomon.spec.loads.documents import Documents
from gnomon.spec.loads.packing import PackedRows

H200 = replace(machine("H200"), framework="torch")
PHASES = ("forward", "backward")
LENGTHS = st.lists(st.integers(1, 3000), min_size=1, max_size=12)


def kernel(phase: Any, **changes: Any) -> CoreAttention:
    usual: dict[str, Any] = {"heads": 32, "kv_heads": 8, "head_dim": 128, "kv_dtype": "bf16"}
    return CoreAttention(name="core", phase=phase, **usual | changes)


def batch_of(*batches: list[int], cp: int = 1, load: float = 1.0) -> Batch:
    """Micro-batches, each of some documents, as one of so many context-parallel ranks has them."""
    rows = PackedRows(np.concatenate(batches), np.cumsum([0, *map(len, batches[:-1])]))
    every, ones = np.arange(len(batches)), np.ones(len(batches))
    documents = Documents(
        rows=rows, row=every, at=every, weight=ones, of=every, longest=rows.longest.astype(float), cp_load=load * ones
    )
    mine = [np.array(batch) / cp for batch in batches]
    tokens = np.array([each.sum() for each in mine])
    pairs = np.array([(each * (each + 1) / 2).sum() for each in mine])
    zero, count = np.zeros(len(batches)), rows.counts.astype(float)
    return Batch(zero, zero, count, tokens, pairs, tokens, count, documents=documents)


def seconds(op: CoreAttention, batch: Batch) -> np.ndarray[Any, Any]:
    return H200.seconds(op.kind, "bf16", op.shape(batch))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("window", [None, Window(512)])
@given(st.integers(1, 4000), st.integers(1, 9))
@settings(max_examples=examples(60))
def test_equal_documents_are_equal_sequences(phase: str, window: Window | None, length: int, count: int) -> None:
    op, one = kernel(phase, window=window), Batch.prefill([count], length)
    np.testing.assert_allclose(seconds(op, batch_of([length] * count)), seconds(op, one), rtol=1e-9)
    np.testing.assert_allclose(op.flops(batch_of([length] * count)), op.flops(one), rtol=1e-12)


@pytest.mark.parametrize("phase", PHASES)
@given(LENGTHS)
@settings(max_examples=examples(60))
def test_flops_are_those_of_every_document(phase: str, lengths: list[int]) -> None:
    for changes in ({}, {"window": Window(256)}, {"causal": False}):
        op = kernel(phase, **changes)
        alone = sum(float(op.flops(Batch.prefill([1], each))[0]) for each in lengths)
        assert float(op.flops(batch_of(lengths))[0]) == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("phase", PHASES)
@given(LENGTHS)
@settings(max_examples=examples(60))
def test_one_kernel_is_between_its_longest_document_and_all_of_them_alone(phase: str, lengths: list[int]) -> None:
    op = kernel(phase)
    alone = [float(seconds(op, Batch.prefill([1], each))[0]) for each in lengths]
    together = float(seconds(op, batch_of(lengths))[0])
    assert together <= sum(alone) * (1 + 1e-9)
    assert together >= 0.97 * max(alone)  # the residual of a profile follows the mean length


@given(LENGTHS)
@settings(max_examples=examples(60))
def test_documents_begin_blocks_of_their_own(lengths: list[int]) -> None:
    shape = kernel("forward").shape(batch_of(lengths))
    blocks = [-(-each // BLOCK) for each in lengths]
    empty = sum((own - each / BLOCK) * own for own, each in zip(blocks, lengths, strict=True))
    assert float(shape["query_blocks"][0]) == float(shape["key_blocks"][0]) == sum(blocks)
    assert float(shape["empty_blocks"][0]) == pytest.approx(empty)
    assert float(shape["longest_keys"][0]) == max(lengths)


@pytest.mark.parametrize("phase", PHASES)
def test_short_documents_waste_the_rest_of_a_tile(phase: str) -> None:
    """As many tokens with as many pairs in all take longer in documents that fill no tile."""
    op = kernel(phase)
    short, full = (float(seconds(op, batch_of([each] * (65536 // each) + [4096]))[0]) for each in (16, 128))
    flops = [float(op.flops(batch_of([each] * (65536 // each) + [4096]))[0]) for each in (16, 128)]
    assert flops[0] < flops[1]
    assert short > full


def test_ranks_wait_for_the_busiest() -> None:
    op = kernel("forward", over=4)
    even, uneven = (batch_of([9000, 100, 3000], cp=4, load=load) for load in (1.0, 1.5))
    assert seconds(op, uneven)[0] > 1.2 * seconds(op, even)[0]
    assert op.flops(uneven).tolist() == op.flops(even).tolist()
    traded = kernel("forward", over=4, traded=4)
    assert seconds(traded, uneven).tolist() == seconds(traded, even).tolist()


def test_documents_of_several_batches_stay_apart() -> None:
    one, other = [100, 2000, 30], [512, 512]
    both, op = batch_of(one, other), kernel("forward", window=Window(300))
    alone = [float(op.flops(batch_of(each))[0]) for each in (one, other)]
    np.testing.assert_allclose(op.flops(both), alone, rtol=1e-12)
    assert both.documents is not None
    again = both.documents.take(np.array([1, 0, 1]))
    assert again.total(lambda tokens: tokens).tolist() == [1024, 2130, 1024]
    joined = Documents.join([both.documents, both.documents])
    assert joined.total(lambda tokens: tokens).tolist() == [2130, 1024, 2130, 1024]
