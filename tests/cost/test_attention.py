"""Attention: the plain-float form against the arrays, and what its price depends on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cost.machines import CHIPS, machine, seconds
from tests.examples import examples

from gnomon import catalog
from gnomon.cost.attention import DECODE, PREFILL, decode_seconds, prefill_seconds, scalar_prefill
from gnomon.cost.rows import shape_of
from gnomon.graph import Attention
from gnomon.graph.windows import Window
from gnomon.spec import Batch
from gnomon.spec.workload import Floats

chunks = st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 100_000)), min_size=1, max_size=6)


@pytest.mark.battery(6)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8"])
@settings(max_examples=examples(100))
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


figures = st.fixed_dictionaries({name: st.floats(low, high) for name, (_, low, high) in PREFILL.items()})


@settings(max_examples=examples(150))
@given(c=figures, n=st.integers(1, 20), new=st.integers(1, 9000), before=st.integers(0, 30_000),
       dim=st.sampled_from([64, 128, 256]), window=st.sampled_from([0, 128, 1024]))  # fmt: skip
def test_one_step_equals_arrays_whatever_the_kernel(
    c: dict[str, float], n: int, new: int, before: int, dim: int, window: int
) -> None:
    chip = catalog.chip("H200")
    op = Attention(
        name="a", phase="prefill", heads=24, kv_heads=4, head_dim=dim, kv_dtype="fp8",
        window=Window(window) if window else None,
    )  # fmt: skip
    sizes = {"batch": n, "q_len": new, "kv_len": new + before, "heads": 24, "kv_heads": 4, "head_dim": dim}
    shape = shape_of("attention_prefill", {k: np.array([float(v)]) for k, v in (sizes | {"window": window}).items()})
    sums = [float(shape[name][0]) for name in ("sequences", "tokens", "pairs", "context")]
    beyond = float(shape["beyond"][0]) if window else 0.0
    found = scalar_prefill(op, chip, c)(*sums, beyond)
    assert found == pytest.approx(prefill_seconds(shape, "fp8", chip, c)[0], rel=1e-9)


def started(kind: str, ranges: dict[str, tuple[float, float, float]], **sizes: float) -> Floats:
    """Seconds by the figures a fit starts from, some of them given."""
    c = {name: sizes.pop(name, first) for name, (first, _, _) in ranges.items()}
    shape = shape_of(kind, {name: np.array([float(value)]) for name, value in sizes.items()})
    price = decode_seconds if kind == "attention_decode" else prefill_seconds
    return price(shape, "bf16", catalog.chip("H200"), c)


def test_packed_heads_fill_a_tile_that_few_queries_leave_idle() -> None:
    few = {"batch": 64, "q_len": 16, "kv_len": 16, "heads": 64, "kv_heads": 8, "head_dim": 128}
    alone, packed = (started("attention_prefill", PREFILL, pack=pack, **few)[0] for pack in (0.0, 1.0))
    assert 3 < alone / packed < 8
    many = few | {"batch": 1, "q_len": 8192, "kv_len": 8192}
    alone, packed = (started("attention_prefill", PREFILL, pack=pack, **many)[0] for pack in (0.0, 1.0))
    assert alone == pytest.approx(packed, rel=0.01)


def test_writing_a_token_takes_as_many_threads_as_numbers_up_to_a_limit() -> None:
    prompt = {"batch": 4, "q_len": 4096, "kv_len": 4096, "heads": 64, "head_dim": 128, "store": 0.0}

    def written(kv_heads: int) -> float:
        took = [started("attention_prefill", PREFILL, kv_heads=kv_heads, token_ns=ns, **prompt)[0] for ns in (0, 2)]
        return float(took[1] - took[0])

    assert written(2) == pytest.approx(2 * written(1))
    assert written(4) == pytest.approx(2 * written(2))
    assert written(16) == pytest.approx(written(4))


def test_only_large_groups_are_left_to_a_kernel_for_lone_heads() -> None:
    sizes = {"batch": 64, "kv_len": 2048, "kv_heads": 1, "head_dim": 128}
    for heads, slower in ((32, False), (64, True)):
        plain, lone = (
            started("attention_decode", DECODE, heads=heads, lone_us=us, lone_ps=ps, **sizes)[0]
            for us, ps in ((0.0, 0.0), (1.2, 36.0))
        )
        assert bool(lone > 3 * plain) is slower
        assert slower or lone == plain


def test_a_block_more_than_processors_starts_a_wave() -> None:
    sizes = {"kv_len": 30_000, "heads": 8, "kv_heads": 1, "head_dim": 128, "key_tile_us": 1.2}
    less, full, more = (started("attention_decode", DECODE, batch=batch, **sizes)[0] for batch in (131, 132, 133))
    assert less < full < 1.02 * less
    assert more > 1.2 * full


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


def test_keys_unfolded_from_latents_are_not_written_to_a_cache() -> None:
    """On an H800 that would be a third of the time of 1,024 tokens of DeepSeek-V3."""
    on, batch = machine("H800"), Batch.prefill(1, 1024)
    c = on.evidence("attention_prefill", "bf16").coefficients
    plain = Attention(name="a", phase="prefill", heads=128, kv_heads=128, head_dim=192, kv_dtype="bf16")
    unfolded = replace(plain, value_dim=128)
    for op, grows in ((plain, True), (unfolded, False)):
        some, more = (prefill_seconds(op.shape(batch), "bf16", on.chip, {**c, "store": x})[0] for x in (1.0, 2.0))
        assert (more > some) == grows
        one = scalar_prefill(op, on.chip, c)(1.0, 1024.0, 1024 * 1025 / 2, 1024.0)
        assert one == pytest.approx(prefill_seconds(op.shape(batch), "bf16", on.chip, c)[0], rel=1e-12)


def test_a_window_plans_by_the_tokens_that_are_cached() -> None:
    """Those that no query sees with them, and none that are not there."""
    on = machine()
    whole = Attention(name="a", phase="prefill", heads=16, kv_heads=4, head_dim=128, kv_dtype="bf16")
    batch = Batch.prefill(2, 342)
    chunked = replace(whole, window=Window(198, True))
    assert on.op_seconds(chunked, batch)[0] < 1.1 * on.op_seconds(whole, batch)[0]
