"""Matrix products on arrays beside the plain formula, and convolutions beside the products they amount to."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cost import plain_gemm
from tests.cost.machines import machine

from gnomon import catalog
from gnomon.calibrate.fit import fit_family
from gnomon.cost import gemm
from gnomon.cost.kernels import kernel_model
from gnomon.load.profiles import profile_for

CHIP = catalog.chip("H200")
MEASURED = Path(__file__).parents[2] / "measurements" / "h200-2026-11-15"
TILE = re.compile(r"_(\d+)x(\d+)_")
SIZE = st.integers(1, 40_000)
FORMAT = st.sampled_from(["bf16", "fp32", "int8"])
START = {name: start for name, (start, _, _) in kernel_model("conv").ranges.items()}


@pytest.mark.parametrize("chip", ["H200", "A100-SXM-80GB"])
@pytest.mark.parametrize("framework", ["", "torch"])
@given(
    m=st.integers(0, 70_000), n=SIZE, k=SIZE, batch=st.integers(1, 64), dtype=st.sampled_from(["bf16", "fp32", "int8"])
)
def test_arrays_equal_the_plain_formula(
    chip: str, framework: str, m: int, n: int, k: int, batch: int, dtype: str
) -> None:
    board = catalog.chip(chip)
    c = profile_for(board).family("gemm", dtype, framework).coefficients
    shape = {name: np.array([float(value)]) for name, value in zip("mnk", (m, n, k), strict=True)}
    found = gemm.seconds(shape | {"batch": np.array([float(batch)])}, dtype, board, c)[0]
    assert found == pytest.approx(plain_gemm.seconds(m, n, k, batch, dtype, board, c), rel=1e-12)


def test_tables_longer_than_a_chunk() -> None:
    rng = np.random.default_rng(0)
    shape = {name: np.round(np.exp(rng.uniform(0, 10, 3 * gemm.CHUNK + 5))) for name in "mnk"}
    c = profile_for(CHIP).family("gemm", "bf16").coefficients
    whole = gemm.seconds(shape, "bf16", CHIP, c)
    picked = rng.integers(0, whole.size, 50)
    alone = gemm.seconds({name: values[picked] for name, values in shape.items()}, "bf16", CHIP, c)
    assert whole.shape == shape["m"].shape and (whole[picked] == alone).all()
    assert gemm.seconds({name: values[:0] for name, values in shape.items()}, "bf16", CHIP, c).size == 0


def conv(m: float, n: float, k: float, groups: float, moved: float, chip: object = CHIP, dtype: str = "bf16") -> float:
    sizes = {"m": m, "n": n, "k": k, "batch": groups, "bytes": moved}
    shape = {name: np.array([float(value)]) for name, value in sizes.items()}
    return float(kernel_model("conv").seconds(shape, dtype, chip, START)[0])  # type: ignore[arg-type]


@given(m=SIZE, n=st.integers(1, 2048), k=st.integers(1, 8192), groups=st.integers(1, 64), byte=st.floats(1e3, 1e10))
def test_a_convolution_is_never_above_the_roofs(m: int, n: int, k: int, groups: int, byte: float) -> None:
    took = conv(m, n, k, groups, byte)
    assert took >= 2.0 * m * n * k * groups / CHIP.rate("bf16")
    assert took >= byte / CHIP.memory_bandwidth_bytes_s


@given(m=SIZE, n=st.integers(1, 2048), k=st.integers(1, 8192), byte=st.floats(1e3, 1e10))
def test_a_better_chip_is_never_slower(m: int, n: int, k: int, byte: float) -> None:
    quicker = replace(CHIP, memory_bandwidth_bytes_s=2 * CHIP.memory_bandwidth_bytes_s)
    assert conv(m, n, k, 1, byte, quicker) <= conv(m, n, k, 1, byte) * (1 + 1e-12)
    faster = replace(CHIP, rates_flops={name: 2 * rate for name, rate in CHIP.rates_flops.items()})
    assert conv(m, n, k, 1, byte, faster) <= conv(m, n, k, 1, byte) * (1 + 1e-12)


def test_thin_groups_leave_the_tensor_cores() -> None:
    """A 7x7 convolution a channel: tiles of it would hold one column in 64."""
    images, channels = 8 * 56 * 56, 96
    moved = 2.0 * 2 * images * channels
    sizes = {"m": images, "n": 1, "k": 49, "batch": channels, "bytes": moved}
    shape = {name: np.array([float(value)]) for name, value in sizes.items()}
    model = kernel_model("conv_depthwise")
    start = {name: first for name, (first, _, _) in model.ranges.items()}
    took = float(model.seconds(shape, "bf16", CHIP, start)[0])
    flops = 2.0 * images * 49 * channels
    assert flops / took < CHIP.rate("fp32") and took < conv(images, 1, 49, channels, moved)
    first = float(model.seconds(shape | {"turned": shape["bytes"]}, "bf16", CHIP, start)[0])
    assert took < first
    assert conv(0, 1, 1, 1, 0.0) == 0.0


def product(kind: str = "gemm_unaligned", dtype: str = "bf16", **layout: float) -> float:
    sizes = {"m": 4096.0, "n": 2560.0, "k": 1024.0, "batch": 1.0} | layout
    shape = {name: np.array([float(value)]) for name, value in sizes.items()}
    c = profile_for(CHIP).family(kind, dtype, "torch").coefficients
    return float(kernel_model(kind).seconds(shape, dtype, CHIP, c)[0])


def test_rows_that_begin_at_odder_bytes_are_slower() -> None:
    """As measured on the H200: three times for pairs of values, five for single ones, seven where the result alone has
    rows that begin at any value."""
    plain = product("gemm")
    pairs = product(aligned=8, out_aligned=16)
    assert product(aligned=4, out_aligned=4) == pairs
    assert 2.5 < pairs / plain < 4
    single, result = product(aligned=2, out_aligned=2), product(aligned=16, out_aligned=2)
    assert 4 < single / plain < 6.5 and 6 < result / plain < 9


def test_tensor_cores_of_wide_values_want_operands_along_k() -> None:
    along, one, both = (product("gemm", "tf32", across=n) for n in (0, 1, 2))
    assert along < one < both < 2.2 * along
    assert product("gemm", across=2) == product("gemm")


def test_sums_over_many_rows_are_split_until_the_chip_is_full() -> None:
    c = profile_for(CHIP).family("gemm", "bf16", "torch").coefficients
    shape = {"m": np.array([256.0]), "n": np.array([256.0]), "k": np.array([262144.0])}
    took = float(gemm.seconds(shape, "bf16", CHIP, c)[0])
    assert took < 2.2 * 2 * 2 * 256 * 262144 / CHIP.memory_bandwidth_bytes_s
    beside = {name: np.append(values, 64.0) for name, values in shape.items()}
    assert gemm.seconds(beside, "bf16", CHIP, c)[0] == took


@given(data=st.data(), chip=st.sampled_from(["H200", "A100", "MI300X", "RTX-4090", "TPU-v6e"]), m=SIZE, n=SIZE, k=SIZE)
def test_laws_hold_for_any_coefficients_a_fit_may_find(data: st.DataObject, chip: str, m: int, n: int, k: int) -> None:
    board = catalog.chip(chip)
    c = {name: data.draw(st.floats(low, high), name) for name, (_, low, high) in gemm.COEFFICIENTS.items()}
    grown = [(m, n, k, 1), (m + 1, n, k, 1), (m, 2 * n, k, 1), (m, n, k + 37, 1), (m, n, k, 3)]
    shape = {name: np.array(values, float) for name, values in zip("mnkb", zip(*grown, strict=True), strict=True)}
    took = gemm.seconds({**shape, "batch": shape["b"]}, "bf16", board, c)
    assert took[0] >= 2.0 * m * n * k / board.matrix_rate("bf16") * (1 - 1e-9)
    assert took[0] >= 2.0 * (m * k + n * k + m * n) / board.memory_bandwidth_bytes_s
    assert (took[1:] >= took[0] * (1 - 1e-9)).all()


FIRST = {name: first for name, (first, _, _) in {**gemm.COEFFICIENTS, **gemm.QUANTISED}.items()}


def fp8(c: dict[str, float], **sizes: float) -> float:
    shape = {name: np.array([float(value)]) for name, value in sizes.items()}
    return float(gemm.seconds(shape, "fp8", CHIP, c)[0])


def test_narrowing_the_activations_counts_where_a_row_holds_it() -> None:
    sizes = {"m": 8192, "n": 64, "k": 4096}
    alone = fp8(FIRST, **sizes)
    assert fp8(FIRST, **sizes, quantised=0) == alone
    passes = 3.0 * 8192 * 4096 / CHIP.memory_bandwidth_bytes_s
    rows = 8192 * FIRST["quantised_row_ns"] * 1e-9
    together = fp8(FIRST, **sizes, quantised=1)
    assert together - alone == pytest.approx(passes + rows + FIRST["launch_us"] * 1e-6)


def test_only_long_products_are_held_back() -> None:
    free, held = FIRST | {"held": 0.0}, FIRST | {"held": 0.8}
    short, long = {"m": 64, "n": 4096, "k": 4096}, {"m": 65536, "n": 16384, "k": 16384}
    assert fp8(held, **short) == pytest.approx(fp8(free, **short), rel=1e-3)
    assert fp8(held, **long) == pytest.approx(1.8 * fp8(free, **long), rel=1e-2)


def test_kernels_that_choose_by_rows_do_not_split() -> None:
    """As measured: a library that splits k keeps few tiles with a long k from waiting for one multiprocessor."""
    thin = {"m": 64, "n": 128, "k": 65536}
    assert fp8(FIRST | {"fixed": 1.0}, **thin) > 3 * fp8(FIRST | {"fixed": 0.0}, **thin)


@pytest.mark.heavy
def test_what_narrows_activations_is_fitted_only_to_rows_that_hold_it() -> None:
    rng = np.random.default_rng(3)
    columns = {name: np.round(2 ** rng.uniform(6, 13, 120)) for name in "mnk"}
    ones = np.ones(120)
    truth = FIRST | {"quantised": 2.0, "quantised_row_ns": 5.0}
    seconds = gemm.seconds({**columns, "quantised": ones}, "fp8", CHIP, truth)
    whole = fit_family("gemm", "fp8", {**columns, "quantised": ones, "time_us": seconds * 1e6}, CHIP)
    assert whole.coefficients["quantised"] == pytest.approx(2.0, rel=0.1)
    assert whole.coefficients["quantised_row_ns"] == pytest.approx(5.0, rel=0.1)
    assert "across" not in whole.coefficients
    alone = fit_family("gemm", "fp8", {**columns, "time_us": seconds * 1e6}, CHIP)
    assert alone.coefficients.keys() == gemm.COEFFICIENTS.keys()
    assert np.abs(whole.errors).mean() < 0.3 * np.abs(alone.errors).mean()


def measured(scales: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """Products that no fit has seen, and the kernels that cuBLAS ran."""
    with (MEASURED / "products.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["scales"] == scales]
    sizes = {name: np.array([float(row[name]) for row in rows]) for name in ("m", "n", "k", "time_us")}
    return sizes, [row["kernel"] for row in rows]


def test_products_on_an_h200_that_no_fit_has_seen() -> None:
    """Clocks wandered between 1.4 and 1.98 GHz while these were timed: with the tiles known, 5% are left."""
    sizes, _ = measured("")
    found = machine().seconds("gemm", "bf16", {**sizes, "batch": np.ones(1)}) * 1e6
    assert np.abs(found / sizes["time_us"] - 1).mean() < 0.075
    assert abs(np.log(found / sizes["time_us"]).mean()) < 0.06


def test_tiles_are_those_of_the_kernels_that_run() -> None:
    """A side of a multiple of 64, another of one of 8, and where few waves suffice the last one is nearly full."""
    sizes, kernels = measured("")
    sides = np.array([[int(side) for side in TILE.search(kernel).group(1, 2)] for kernel in kernels])  # type: ignore[union-attr]
    assert ((sides % 64 == 0).any(axis=1) & (sides % 8 == 0).all(axis=1)).all()
    tiles = np.ceil(sizes["n"] / sides[:, 0]) * np.ceil(sizes["m"] / sides[:, 1])
    load = tiles / CHIP.sm_count
    few = (load > 0.9) & (load < 4)
    assert np.median(load[few] / np.ceil(load[few])) > 0.9
