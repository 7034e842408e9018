"""Attention: the plain-float form against the arrays, and what its price depends on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cost.machines import CHIPS, machine, seconds

from gnomon.cost.attention import prefill_seconds, scalar_prefill
from gnomon.graph import Attention
from gnomon.spec import Batch

chunks = st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 100_000)), min_size=1, max_size=6)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8"])
@settings(max_examples=100)
@given(chunks=chunks, kv_heads=st.sampled_from([1, 2, 4, 8]), group=st.sampled_from([1, 4, 8]))
def test_one_step_equals_arrays(
    chip: str, kv_dtype: str, chunks: list[tuple[int, int]], kv_heads: int, group: int
) -> None:
    on = machine(chip)
    op = Attention(
        name="a", phase="prefill", heads=kv_heads * group, kv_heads=kv_heads, head_dim=128, kv_dtype=kv_dtype
    )
    c = on.evidence("attention_prefill", kv_dtype).coefficients
    batch = Batch.step([], chunks)
    sums = (batch.prefills, batch.prefill_tokens, batch.prefill_pairs, batch.prefill_context)
    expected = prefill_seconds(op.shape(batch), kv_dtype, on.chip, c)[0]
    assert scalar_prefill(op, on.chip, c)(*(float(x[0]) for x in sums)) == pytest.approx(expected, rel=1e-12)


HEADS = {"heads": 32, "kv_heads": 8, "head_dim": 128}


def test_decodes_read_the_cache() -> None:
    on = machine()
    long = float(seconds(on, "attention_decode", batch=256, kv_len=8192, **HEADS)[0])
    cache = 2 * 256 * 8192 * 8 * 128 * 2 / on.chip.memory_bandwidth_bytes_s
    assert cache < long < 1.5 * cache
    narrow = float(seconds(on, "attention_decode", "fp8", batch=256, kv_len=8192, **HEADS)[0])
    assert cache / 2 < narrow < 0.9 * long  # an H200 takes 0.8 of the time: it multiplies, and turns values around


def test_fewer_kv_heads_are_less_to_read() -> None:
    times = [
        float(seconds(machine(), "attention_decode", batch=128, kv_len=4096, heads=32, kv_heads=kv, head_dim=128)[0])
        for kv in (1, 2, 4, 8, 32)
    ]
    assert times == sorted(times)
    assert times[-1] > 8 * times[0]


def test_prompts_cost_what_their_pairs_cost() -> None:
    on = machine()
    short, long = seconds(on, "attention_prefill", batch=1, q_len=[4096, 16384], kv_len=[4096, 16384], **HEADS)
    assert 12 < long / short < 16.5
    flops = 4 * 16384 * 16385 / 2 * 4096
    assert 0.3 < flops / long / on.chip.rate("bf16") < 1


def test_a_chunk_over_a_cache_costs_more_than_alone() -> None:
    times = seconds(machine(), "attention_prefill", batch=1, q_len=512, kv_len=[512, 4608, 33280], **HEADS)
    assert np.all(np.diff(times) > 0)
    # 512 new tokens over 32,768 see 64 times as many keys as by themselves twice over.
    assert times[2] > 10 * times[0]


def test_no_sequences_take_no_time() -> None:
    on = machine()
    for phase in ("decode", "prefill"):
        op = Attention(name="a", phase=phase, heads=32, kv_heads=8, head_dim=128, kv_dtype="bf16")
        assert on.op_seconds(op, Batch.step([], []))[0] == 0
    decode = Attention(name="a", phase="decode", heads=32, kv_heads=8, head_dim=128, kv_dtype="bf16")
    assert on.op_seconds(decode, Batch.prefill(1, 100))[0] == 0
