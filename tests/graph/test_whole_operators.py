"""Operators of traced modules: sizes of their own, whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.graph.ops import Convolution, SequenceAttention
from gnomon.spec import Batch

LENGTH = st.integers(1, 300)


def attention(queries: int, keys: int, *, causal: bool, phase: str = "forward") -> SequenceAttention:
    return SequenceAttention(
        name="x", phase=phase, sequences=2, heads=4, kv_heads=2, queries=queries, keys=keys, head_dim=8, value_dim=8,
        causal=causal, dtype="bf16",
    )  # type: ignore[arg-type]  # fmt: skip


@given(queries=LENGTH, keys=LENGTH)
def test_pairs_are_those_of_pytorchs_mask(queries: int, keys: int) -> None:
    mask = np.tril(np.ones((queries, keys)))
    assert attention(queries, keys, causal=True).pairs == mask.sum()
    assert attention(queries, keys, causal=False).pairs == mask.size


@given(tokens=LENGTH)
def test_whole_causal_sequences_are_those_of_a_batch(tokens: int) -> None:
    """The same attention, told by its own sizes and by a batch's."""
    from gnomon.graph.ops import Attention

    batch = Batch.prefill([2], tokens)
    for phase in ("forward", "backward"):
        told = Attention(name="x", phase=phase, heads=4, kv_heads=2, head_dim=8, kv_dtype="bf16")  # type: ignore[arg-type]
        own = attention(tokens, tokens, causal=True, phase=phase)
        assert own.kind == told.kind
        assert own.flops(batch) == pytest.approx(told.flops(batch))
        assert own.bytes(batch) == pytest.approx(told.bytes(batch))
        ours, theirs = own.shape(batch), told.shape(batch)
        assert {name: float(value[0]) for name, value in theirs.items()} == {
            name: float(ours[name][0]) for name in theirs
        }


def test_sizes_follow_no_batch() -> None:
    conv = Convolution(name="x", m=10, n=4, k=2.5, groups=3, moved=100.0, dtype="bf16")
    for count in (1, 7):
        batch = Batch.decode([1.0] * count, 5)
        assert conv.flops(batch).tolist() == [2.0 * 10 * 4 * 2.5 * 3] * count
        assert conv.bytes(batch).tolist() == [100.0] * count
        sizes = {name: value.size for name, value in conv.shape(batch).items()}
        assert set(sizes.values()) == {count} and {"m", "n", "k", "batch", "bytes"} <= set(sizes)
