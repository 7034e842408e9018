"""Laws of the mixers beside plain attention: windows, latents, states, on every kind of chip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cost.machines import CHIPS, faster, machine
from tests.examples import examples

from gnomon import catalog
from gnomon.cost.machine import Machine, priced_dtype
from gnomon.graph import Attention, Op
from gnomon.graph.mixer_ops import MIXINGS, IndexScores, LatentDecode, Scan
from gnomon.graph.windows import Window
from gnomon.load import model as load_model
from gnomon.spec import Batch

pytestmark = pytest.mark.battery(2)

ROUNDING = 1 - 1e-9
FEWER_PARTS = {"sequences": 0.6, "tokens": 0.7}
"""Of attention's time, what more work leaves at least: FlashAttention-3 cuts a cache into fewer parts then, which run
in fewer waves and are summed up sooner."""
IN_WAVES = {"decode": 1.0, "prefill": 0.85}
"""The same of windows: tiles that all see as much wait for the last wave, those of a whole prompt fill it."""
phases = st.sampled_from(["decode", "prefill"])
few = st.integers(1, 64)


@st.composite
def latents(draw: st.DrawFn) -> Op:
    return LatentDecode(
        name="x",
        phase=draw(phases),
        heads=draw(st.sampled_from([1, 8, 16, 64, 128])),
        kv_rank=512,
        rope_dim=64,
        kv_dtype=draw(st.sampled_from(["bf16", "fp8"])),
        topk=draw(st.sampled_from([None, 64, 2048])),
    )


@st.composite
def scans(draw: st.DrawFn) -> Op:
    mixer = draw(st.sampled_from(MIXINGS))
    return Scan(
        name="x",
        phase=draw(phases),
        mixer=mixer,
        heads=draw(st.sampled_from([8, 64, 128])),
        head_dim=1 if mixer == "mamba" else draw(st.sampled_from([64, 128])),
        state_dim=draw(st.sampled_from([16, 128])),
        groups=draw(st.sampled_from([1, 8])),
        chunk=draw(st.sampled_from([64, 256])),
        state_dtype=draw(st.sampled_from(["bf16", "fp32"])),
    )


@st.composite
def scores(draw: st.DrawFn) -> Op:
    return IndexScores(name="x", phase=draw(phases), heads=draw(st.sampled_from([4, 64])), head_dim=128)


@st.composite
def windowed(draw: st.DrawFn) -> Attention:
    return Attention(
        name="x",
        phase=draw(phases),
        heads=16,
        kv_heads=draw(st.sampled_from([1, 4, 16])),
        head_dim=draw(st.sampled_from([64, 128, 256])),
        kv_dtype=draw(st.sampled_from(["bf16", "fp8"])),
        window=Window(draw(st.integers(1, 9000)), draw(st.booleans())),
        capped=draw(st.booleans()),
    )


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, Batch]:
    """Equal sequences, and more of them."""
    n, new, cached = draw(few), draw(st.integers(1, 4000)), draw(st.sampled_from([0, 10, 700, 5000, 40_000]))
    more = n + draw(few)
    small, large = (
        Batch.stack([Batch.decode(count, cached), Batch.prefill(count, new, cached)]) for count in (n, more)
    )
    return small, large


ops = st.one_of(latents(), scans(), scores(), windowed())


def seconds(on: Machine, op: Op, batch: Batch) -> np.ndarray[Any, np.dtype[np.float64]]:
    return on.op_seconds(op, batch)


@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=60)
@given(op=ops, steps=batches())
def test_never_below_the_roofline(chip: str, op: Op, steps: tuple[Batch, Batch]) -> None:
    on, (batch, _) = machine(chip), steps
    took = seconds(on, op, batch)
    narrow = "fp8" if isinstance(op, IndexScores) and "fp8" in on.chip.rates_flops else on.chip.half
    assert np.all(np.isfinite(took))
    assert np.all(took * on.chip.rate(narrow) >= op.flops(batch) * ROUNDING)
    assert np.all(took * on.chip.memory_bandwidth_bytes_s >= op.bytes(batch) * ROUNDING)
    assert np.all((took > 0) == (op.bytes(batch) > 0))


@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=60)
@given(op=ops, steps=batches(), memory=st.floats(1, 4), rate=st.floats(1, 4))
def test_a_better_chip_is_never_slower(
    chip: str, op: Op, steps: tuple[Batch, Batch], memory: float, rate: float
) -> None:
    found = catalog.chip(chip)
    slow, quick = machine(found), machine(found, **faster(found, memory, rate))
    assert np.all(seconds(quick, op, steps[0]) <= seconds(slow, op, steps[0]) / ROUNDING)


def left(on: Machine, op: Op, small: Batch, large: Batch, grown: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The part of a time that more work leaves at least, where parts are fewer and a learnt residual falls."""
    if not isinstance(op, (Attention, LatentDecode)):
        return np.ones(1)
    autograd, least = on.evidence(op.kind, op.kv_dtype).residual, np.full(1, FEWER_PARTS[grown])
    for axis in autograd.axes if autograd else ():
        with np.errstate(divide="ignore", invalid="ignore"):
            octaves = np.log2(axis.of(op.shape(large)) / axis.of(op.shape(small)))
        least = least * np.exp(-axis.most_fall * np.fmax(octaves, 0.0))
    return least


@settings(max_examples=examples(150))
@given(op=ops, steps=batches())
def test_more_sequences_are_never_quicker(op: Op, steps: tuple[Batch, Batch]) -> None:
    """But for the kernel that adds up splits, which more sequences spare."""
    on = machine()
    spared = on.evidence(op.kind, priced_dtype(op)).coefficients.get("combine_us", 0.0) * 1e-6
    less, more = (seconds(on, op, batch) for batch in steps)
    assert np.all(more >= (less - spared) * left(on, op, *steps, "sequences") * 0.98)


@settings(max_examples=examples(100))
@given(op=st.one_of(latents(), scans(), scores()), n=few, new=st.integers(1, 4000), more=st.integers(1, 4000))
def test_more_tokens_are_never_quicker(op: Op, n: int, new: int, more: int) -> None:
    """Of prompts their own tokens, of decodes those before them."""
    on = machine()
    steps = [Batch.stack([Batch.decode(n, length), Batch.prefill(n, length)]) for length in (new, new + more)]
    less, longer = (seconds(on, op, batch) for batch in steps)
    assert np.all(longer >= less * left(on, op, *steps, "tokens") * ROUNDING)


@settings(max_examples=examples(100))
@given(op=scans(), n=few, new=st.integers(1, 2000), times=st.integers(2, 50))
def test_a_chunk_longer_than_the_prompts_is_as_long_as_they_are(op: Op, n: int, new: int, times: int) -> None:
    assert isinstance(op, Scan)
    batch = Batch.prefill(n, new)
    fitting, longer = (replace(op, phase="prefill", chunk=chunk) for chunk in (new, new * times))
    assert seconds(machine(), longer, batch) == pytest.approx(seconds(machine(), fitting, batch))


def masked(on: Machine, op: Attention, batch: Batch) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What an operator may take at most under a narrower window: one that hides something has a kernel of its own,
    whose tiles are slower and which is planned. Measured on an H200, a window took 1.3 times (1.09 to 1.73) what a
    cache of its length is priced at."""
    c, took = on.evidence(op.kind, op.kv_dtype).coefficients, seconds(on, op, batch)
    if op.window is None or not np.any(op.shape(batch)["beyond"]):
        took = took * c["masked"] + np.where(took > 0, c.get("window_us", 0.0) * 1e-6, 0.0)
    return took / IN_WAVES[op.phase]


@settings(max_examples=examples(200))
@given(op=windowed(), steps=batches())
def test_a_window_is_never_slower_than_none(op: Attention, steps: tuple[Batch, Batch]) -> None:
    on = machine()
    for batch in steps:
        assert np.all(seconds(on, op, batch) <= masked(on, replace(op, window=None), batch) / ROUNDING)


@settings(max_examples=examples(100))
@given(op=windowed(), n=few, length=st.integers(1, 3000))
def test_a_window_that_holds_everything_is_none(op: Attention, n: int, length: int) -> None:
    wide = replace(op, window=Window(length + 1, op.window.chunked if op.window else False))
    batch = Batch.stack([Batch.decode(n, length), Batch.prefill(n, length)])
    whole = replace(op, window=None)
    np.testing.assert_allclose(seconds(machine(), wide, batch), seconds(machine(), whole, batch), rtol=1e-12)


@settings(max_examples=60)
@given(op=windowed(), wider=st.integers(1, 5000), steps=batches())
def test_a_wider_window_is_never_quicker(op: Attention, wider: int, steps: tuple[Batch, Batch]) -> None:
    """Of windows that slide; chunks that begin elsewhere may leave less to see."""
    assert op.window is not None
    near, far = (replace(op, window=Window(op.window.length + more)) for more in (0, wider))
    on = machine()
    assert np.all(seconds(on, near, steps[0]) <= masked(on, far, steps[0]) / 0.98)


def test_latents_are_a_small_cache() -> None:
    """DeepSeek-V3 keeps 70 KB a token (its report, section 2.1.1: 576 numbers a layer), and no rank shares it."""
    model = load_model("deepseek-v3")
    assert model.kv_bytes_per_token(2.0) == model.kv_bytes_per_token(2.0, tp=8) == 61 * 576 * 2
