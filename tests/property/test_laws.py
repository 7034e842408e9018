"""Laws that prices obey on every chip: no faster than the chip, never slower on a better one, and so on.

Elementwise operators are left out of the roofline: what was just written is still in L2, which is faster than
the memory. `test_operator_laws.py` goes over every kind of operator on every chip.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.cost.machines import CHIPS, faster, machine, seconds
from tests.examples import examples

from gnomon import catalog
from gnomon.cost import gemm, moe
from gnomon.cost.machine import Machine
from gnomon.graph.dtypes import width
from gnomon.spec.workload import Floats

pytestmark = pytest.mark.battery(2)

Case = tuple[str, str, dict[str, Any]]
ROUNDING = 1 - 1e-12
FORMATS = ("bf16", "fp16", "fp8")

tokens = st.integers(1, 100_000)
wide = st.integers(1, 400).map(lambda n: n * 64)
formats = st.sampled_from(FORMATS)


@st.composite
def gemms(draw: st.DrawFn) -> Case:
    return (
        "gemm",
        draw(formats),
        {"m": draw(tokens), "n": draw(wide), "k": draw(wide), "batch": draw(st.integers(1, 4))},
    )


@st.composite
def mixtures(draw: st.DrawFn) -> Case:
    experts = draw(st.sampled_from([4, 8, 64, 128, 256]))
    columns = {"tokens": draw(tokens), "hidden": draw(wide), "inter": draw(wide), "experts": experts}
    return "moe", draw(formats), columns | {"topk": draw(st.integers(1, min(experts, 16)))}


@st.composite
def heads(draw: st.DrawFn) -> dict[str, int]:
    kv_heads = draw(st.sampled_from([1, 2, 4, 8, 32]))
    group = draw(st.sampled_from([1, 4, 7, 8, 16, 64]))
    return {"heads": kv_heads * group, "kv_heads": kv_heads, "head_dim": draw(st.sampled_from([64, 128, 256]))}


@st.composite
def decodes(draw: st.DrawFn) -> Case:
    columns = draw(heads()) | {"batch": draw(st.integers(1, 1024)), "kv_len": draw(tokens)}
    return "attention_decode", draw(st.sampled_from(["bf16", "fp8"])), columns


@st.composite
def prompts(draw: st.DrawFn) -> Case:
    new = draw(st.integers(1, 20_000))
    columns = draw(heads()) | {"batch": draw(st.integers(1, 32)), "q_len": new}
    columns["kv_len"] = new + draw(st.sampled_from([0, 1, 100, 5_000, 100_000]))
    return "attention_prefill", draw(st.sampled_from(["bf16", "fp8"])), columns


@st.composite
def streams(draw: st.DrawFn) -> Case:
    size = st.integers(1, 10**9)
    return "elementwise", "bf16", {"bytes_read": draw(size), "bytes_written": draw(size)}


cases = st.one_of(gemms(), mixtures(), decodes(), prompts(), streams())
GROWING = {
    "gemm": ("m", "n", "k"),
    "moe": ("tokens", "hidden", "inter"),
    "attention_decode": ("kv_len", "batch"),
    "attention_prefill": ("q_len", "batch"),
    "elementwise": ("bytes_read", "bytes_written"),
}


def price(on: Machine, case: Case) -> float:
    kind, dtype, columns = case
    return float(seconds(on, kind, dtype, **columns)[0])


def has_rate(chip: str, kind: str, dtype: str) -> bool:
    """Attention computes in bf16 whatever the cache holds."""
    return kind not in ("gemm", "moe") or catalog.chip(chip).instead_of(dtype) is not None


def least_work(case: Case) -> tuple[float, float]:
    """FLOPs, and bytes that must come from memory: weights or cache once, inputs, outputs."""
    kind, dtype, c = case
    if kind == "gemm":
        moved = (c["m"] + c["n"]) * c["k"] * width(dtype) + c["m"] * c["n"] * 2
        return 2.0 * c["batch"] * c["m"] * c["n"] * c["k"], float(c["batch"] * moved)
    if kind == "moe":
        matrices = 3.0 * c["hidden"] * c["inter"]
        # Even if all tokens choose the same experts, these are read.
        return 2 * c["tokens"] * c["topk"] * matrices, c["topk"] * matrices * width(dtype)
    new = 1 if kind == "attention_decode" else c["q_len"]
    pairs = c["batch"] * (new * (c["kv_len"] - new) + new * (new + 1) / 2)
    cache = 2.0 * c["batch"] * c["kv_len"] * c["kv_heads"] * c["head_dim"] * width(dtype)
    return 4.0 * pairs * c["heads"] * c["head_dim"], cache + 4.0 * c["batch"] * new * c["heads"] * c["head_dim"]


@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=examples(150))
@given(case=st.one_of(gemms(), mixtures(), decodes(), prompts()))
def test_never_below_the_roofline(chip: str, case: Case) -> None:
    assume(has_rate(chip, *case[:2]))
    on = machine(chip)
    flops, moved = least_work(case)
    kind, dtype, _ = case
    rate = on.chip.matrix_rate(dtype if kind in ("gemm", "moe") else "bf16")
    assert price(on, case) >= max(flops / rate, moved / on.chip.memory_bandwidth_bytes_s) * ROUNDING


@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=examples(100))
@given(case=cases, memory=st.floats(1, 4), rate=st.floats(1, 4))
def test_a_better_chip_is_never_slower(chip: str, case: Case, memory: float, rate: float) -> None:
    assume(has_rate(chip, *case[:2]))
    found = catalog.chip(chip)
    slow, quick = machine(found), machine(found, **faster(found, memory, rate))
    assert price(quick, case) <= price(slow, case) / ROUNDING


@settings(max_examples=60)
@given(case=cases)
def test_twice_the_chip_is_at_most_twice_as_fast(case: Case) -> None:
    """Twice the memory and twice the arithmetic are never more than twice as fast, but for long products that a power
    limit holds back: half as long, they are held back less."""
    found = catalog.chip("H200")
    once, twice = price(machine(found), case), price(machine(found, **faster(found, 2, 2)), case)
    assert once / 2 <= twice * (1.1 if case[0] == "gemm" else 1.0) / ROUNDING


@settings(max_examples=examples(200))
@given(case=cases, data=st.data())
def test_more_work_is_never_quicker(case: Case, data: st.DataObject) -> None:
    """Attention splits its keys where it would leave processors idle, so a little more of it may need no splits, no
    kernel that adds them up, and a wave less: it is asked of eight times the work, and of little more below."""
    kind, dtype, columns = case
    name = data.draw(st.sampled_from(GROWING[kind]))
    attends = kind.startswith("attention")
    more = columns[name] * 8 if attends else columns[name] + data.draw(st.integers(1, 300))
    on = machine()
    spared = on.evidence(kind, dtype).coefficients.get("combine_us", 0.0) * 1e-6
    before, after = (price(on, (kind, dtype, c)) for c in (columns, _grown(columns, name, more)))
    assert after >= (before - spared) * (0.96 if attends else 0.98) * ROUNDING


def _grown(columns: dict[str, Any], name: str, more: int) -> dict[str, Any]:
    """The columns with more of one; new tokens of a prompt come to those it attends to as well."""
    larger = columns | {name: more}
    if name == "q_len":
        larger["kv_len"] = columns["kv_len"] + more - columns["q_len"]
    return larger


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("kind", ["attention_decode", "attention_prefill"])
def test_a_little_more_attention_is_rarely_quicker(kind: str, dtype: str) -> None:
    """Where a wave is spared, by no more than that: of 4,000 drawn pairs fewer than one in a hundred falls by more than
    the kernel that adds up splits, and none to less than 0.6."""
    draw, on = random.Random(f"{kind} {dtype}"), machine()
    pairs = [_pair(kind, draw) for _ in range(4000)]
    before, after = (
        seconds(
            on, kind, dtype, **{name: np.array([pair[side][name] for pair in pairs], float) for name in pairs[0][0]}
        )
        for side in (0, 1)
    )
    spared = on.evidence(kind, dtype).coefficients["combine_us"] * 1e-6
    ratio = (after + spared) / before
    assert np.mean(ratio < 1) < 0.01
    assert ratio.min() > 0.6


def _pair(kind: str, draw: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sizes of attention, small ones as often as large ones, and the same with a little more of one of them."""
    kv_heads = draw.choice([1, 2, 4, 8, 32])
    columns = {"heads": kv_heads * draw.choice([1, 4, 7, 8, 16, 64]), "kv_heads": kv_heads}
    columns |= {"head_dim": draw.choice([64, 128, 256]), "batch": int(2 ** draw.uniform(0, 10))}
    columns["kv_len"] = int(2 ** draw.uniform(0, 16.6))
    if kind == "attention_prefill":
        columns |= {"batch": int(2 ** draw.uniform(0, 5)), "q_len": int(2 ** draw.uniform(0, 14))}
        columns["kv_len"] = columns["q_len"] + draw.choice([0, 1, 100, 5_000, 100_000])
    name = draw.choice(GROWING[kind])
    return columns, _grown(columns, name, columns[name] + draw.randint(1, 300))


@pytest.mark.parametrize(
    ("chip", "dtype"), [(chip, dtype) for chip in CHIPS for dtype in FORMATS if has_rate(chip, "gemm", dtype)]
)
def test_gemms_and_mixtures_rise_with_every_row(chip: str, dtype: str) -> None:
    rows = np.arange(1.0, 3000.0)
    for n, k in ((6144, 4096), (4096, 14336), (128, 2048), (128256, 4096), (64, 64)):
        times = seconds(machine(chip), "gemm", dtype, m=rows, n=n, k=k)
        assert np.all(np.diff(times) >= -(1e-3 + gemm.LEVEL * np.diff(np.log2(rows))) * times[1:]), (n, k)
    for hidden, inter, experts, topk in ((2048, 768, 128, 8), (4096, 14336, 8, 2)):
        shape = {"hidden": hidden, "inter": inter, "experts": experts, "topk": topk}
        times = seconds(machine(chip), "moe", dtype, tokens=rows, **shape)
        assert np.all(np.diff(times) >= -(1e-3 + moe.LEVEL * np.diff(np.log2(rows))) * times[1:]), shape


SIZES = np.unique(np.geomspace(1, 1_000_000, 40).round())
EXTREMES: dict[str, Callable[[Floats], dict[str, Any]]] = {
    "gemm": lambda n: {"m": n, "n": n[::-1], "k": 4096},
    "moe": lambda n: {"tokens": n, "hidden": 2048, "inter": 768, "experts": 128, "topk": 8},
    "attention_decode": lambda n: {"batch": n[::-1], "kv_len": n, "heads": 32, "kv_heads": 8, "head_dim": 128},
    "attention_prefill": lambda n: {"batch": 1, "q_len": n, "kv_len": n, "heads": 32, "kv_heads": 8, "head_dim": 128},
    "elementwise": lambda n: {"bytes_read": n * 1e6, "bytes_written": n},
    "all_reduce": lambda n: {"bytes": n * 1e4, "ranks": 8},
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_sizes_have_a_time(chip: str, kind: str) -> None:
    times = seconds(machine(chip, 8), kind, **EXTREMES[kind](SIZES))
    assert np.all(np.isfinite(times))
    assert np.all(times >= 1e-7)
    assert times.shape == SIZES.shape


@settings(max_examples=40)
@given(case=cases)
def test_a_chip_of_the_same_figures_gives_the_same_time(case: Case) -> None:
    own = replace(catalog.chip("H200"), name="H200-of-our-own", aliases=())
    assert price(machine(own), case) == price(machine("H200"), case)


@pytest.mark.parametrize("kind", [kind for kind in EXTREMES if kind != "all_reduce"])
def test_one_call_for_many_equals_many_calls(kind: str) -> None:
    columns = EXTREMES[kind](SIZES)
    together = seconds(machine(), kind, **columns)
    alone = [
        float(
            seconds(
                machine(), kind, **{name: np.broadcast_to(value, SIZES.shape)[i] for name, value in columns.items()}
            )[0]
        )
        for i in range(SIZES.size)
    ]
    np.testing.assert_allclose(together, alone, rtol=1e-13)
