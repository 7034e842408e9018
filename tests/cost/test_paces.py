"""Formats without a fit of their own: laws, and the published tables their paces are from."""

from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest
from tools.published import tables

from gnomon.calibrate.usable import LEAST_US
from gnomon.catalog import chip
from gnomon.cost.efficiencies import EFFICIENCIES, efficiency
from gnomon.cost.kernels import UNFITTED, kernel_model
from gnomon.graph.dtypes import GEMM_FORMATS, gemm_format
from gnomon.graph.ops import Shape
from gnomon.load.profiles import profile_for

CHIPS = ("A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM-141GB", "B200-SXM-180GB", "L4", "RTX-4090")
SOURCE = "aiconfigurator-0.12.0"


def seconds(kind: str, dtype: str, on: str, shape: Shape) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = chip(on)
    return kernel_model(kind).seconds(shape, dtype, found, profile_for(found).family(kind, dtype).coefficients)


def products(m: float = 16.0, n: float = 8192.0, k: float = 8192.0) -> Shape:
    return {"m": np.array([m]), "n": np.array([n]), "k": np.array([k]), "batch": np.ones(1)}


@pytest.mark.parametrize("on", CHIPS)
@pytest.mark.parametrize("dtype", [name for name in GEMM_FORMATS if name != "nvfp4"])
def test_never_below_the_roofline(on: str, dtype: str) -> None:
    found, sides = chip(on), gemm_format(dtype)
    if sides.compute_dtype not in found.rates_flops:
        pytest.skip(f"{on} does not multiply {sides.compute_dtype}")
    for m in (1.0, 64.0, 4096.0):
        shape = products(m)
        least = 2 * m * 8192.0**2 / found.gemm_rate(sides.compute_dtype, sparse=sides.sparse)
        streamed = (8192.0**2 * sides.weights + m * 8192 * (sides.inputs + 2)) / found.memory_bandwidth_bytes_s
        assert seconds("gemm", dtype, on, shape)[0] > 0.9 * max(least, streamed)


@pytest.mark.parametrize("on", CHIPS)
def test_few_rows_gain_from_narrow_weights_and_many_do_not(on: str) -> None:
    few, many = products(4.0, 16384, 16384), products(8192.0)
    assert seconds("gemm", "int4-weights", on, few)[0] < 0.8 * seconds("gemm", "bf16", on, few)[0]
    assert seconds("gemm", "int4-weights", on, many)[0] >= 0.95 * seconds("gemm", "bf16", on, many)[0]


@pytest.mark.battery(8)
@pytest.mark.parametrize(("kind", "dtype"), EFFICIENCIES)
@pytest.mark.parametrize("on", CHIPS)
def test_evidence_is_wider_than_what_it_stands_on(kind: str, dtype: str, on: str) -> None:
    profile = profile_for(chip(on))
    paced, base = profile.family(kind, dtype), profile.family(kind, "bf16")
    if f"{kind}.{dtype}" in profile.families:
        assert "efficiency by" not in paced.source
        return
    assert paced.source != base.source
    known = efficiency(kind, dtype, profile.architecture) is not None  # of fp32, on cards of Ada alone
    assert ("efficiency by" if known else f"none in {dtype}") in paced.source
    assert paced.spread > (0.15 if known else UNFITTED)
    assert paced.shared <= paced.spread


TABLES = [
    ("A100-SXM-80GB", "trtllm", "int4_wo", "int4-weights", 0.18),
    ("H100-SXM-80GB", "sglang", "fp8_block", "fp8-blocks", 0.15),
    ("B200-SXM-180GB", "vllm", "nvfp4", "nvfp4", 0.11),
    ("GB200", "vllm", "nvfp4", "nvfp4", 0.16),
]
"""Products, with the largest error at the median. No pace was fitted to the GB200's table."""


@pytest.mark.heavy
@pytest.mark.parametrize(("on", "framework", "theirs", "dtype", "most"), TABLES)
def test_products_against_published_tables(on: str, framework: str, theirs: str, dtype: str, most: float) -> None:
    folder = tables()
    if folder is None:
        pytest.skip("the published tables are not here (GNOMON_TRUTH)")
    wanted = {"source": SOURCE, "gpu": on, "framework": framework, "dtype": theirs}
    with gzip.open(folder / "kernels_gemm.csv.gz", "rt") as text:
        rows = [row for row in csv.DictReader(text) if all(row[name] == value for name, value in wanted.items())]
    rows = [row for row in rows if float(row["time_us"]) >= LEAST_US]
    sizes = {name: np.array([float(row[name]) for row in rows]) for name in ("m", "n", "k", "time_us")}
    shape = {name: sizes[name] for name in ("m", "n", "k")} | {"batch": np.ones(1)}
    ours = seconds("gemm", dtype, on, shape)
    narrow = gemm_format(dtype).inputs
    if narrow < 2:
        moved = {"bytes_read": sizes["m"] * sizes["k"] * 4, "bytes_written": sizes["m"] * sizes["k"] * narrow}
        ours = ours + seconds("elementwise", "bf16", on, moved)
    error = np.abs(ours / (sizes["time_us"] * 1e-6) - 1)
    assert len(rows) > 1000
    assert np.median(error) < most
