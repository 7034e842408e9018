"""Every chip's figures make sense, have a source and a date, and its names find it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from gnomon import catalog
from gnomon.catalog.base import DATA
from gnomon.catalog.book import squash
from gnomon.catalog.figures import CONFIDENCES
from gnomon.errors import UnknownNameError
from gnomon.graph.dtypes import GEMM_FORMATS, WIDTH
from gnomon.spec import Chip
from gnomon.spec.chip import FORMATS
from gnomon.spec.formats import OF_TECHNIQUES

CHIPS = pytest.mark.parametrize("chip", catalog.chips(), ids=lambda chip: chip.name)
FIGURES = ["memory_bytes", "memory_bandwidth_bytes_s", "l2_bytes", "sm_count", "boost_hz", "tdp_w", "idle_w"]


def test_there_are_many() -> None:
    assert len(catalog.chips()) >= 60
    vendors = Counter(chip.vendor for chip in catalog.chips())
    assert {"NVIDIA", "AMD", "Intel", "Google", "AWS", "Apple", "Huawei"} <= set(vendors)


@CHIPS
def test_figures_are_in_a_sane_range(chip: Chip) -> None:
    assert 4e9 < chip.memory_bytes < 1e12
    assert 2e10 < chip.memory_bandwidth_bytes_s < 1e14
    assert 1e6 < chip.l2_bytes < 1e9
    assert 0 < chip.idle_w < chip.tdp_w < 3000
    assert 5e8 < chip.boost_hz < 4e9
    assert isinstance(chip.sm_count, int)
    assert chip.sm_count > 0
    assert chip.scaleup_size >= 1
    assert chip.scaleup.bandwidth_bytes_s >= chip.scaleout.bandwidth_bytes_s > 0
    assert 0 < chip.scaleup.latency_s <= chip.scaleout.latency_s < 1e-3
    assert 0 < chip.price_usd_h < 100
    assert 2010 < chip.year < 2030
    assert chip.bridge is None or chip.bridge_size > 1


@CHIPS
def test_rates_are_dense_and_in_order(chip: Chip) -> None:
    """A sparse rate that slipped in as a dense one would stand above its twice as narrow neighbour."""
    rates = chip.rates_flops
    assert rates
    assert set(rates) | set(chip.sparse_flops) <= set(FORMATS)
    assert rates[chip.half] >= rates.get("fp32", 0.0)
    for wide, narrow in (("tf32", "bf16"), ("bf16", "fp8"), ("fp8", "fp4")):
        if wide in rates and narrow in rates:
            assert rates[wide] <= rates[narrow] * 1.001
    for dtype, sparse in chip.sparse_flops.items():
        assert 1.3 <= sparse / rates[dtype] <= 4.0
        assert sparse / rates[dtype] <= 2.03 or chip.architecture == "Trainium"  # keeps four of sixteen weights


@CHIPS
def test_every_figure_has_a_source_and_a_date(chip: Chip) -> None:
    figures = [f"rates_flops.{dtype}" for dtype in chip.rates_flops]
    figures += [f"sparse_flops.{dtype}" for dtype in chip.sparse_flops]
    figures += [f"{link}.{part}" for link in ("scaleup", "scaleout") for part in ("bandwidth_bytes_s", "latency_s")]
    figures += [*FIGURES, "scaleup_size", "price_usd_h"]
    figures += ["bridge.bandwidth_bytes_s"] if chip.bridge else []
    assert set(figures) == set(chip.sources)
    assert all("(20" in source for source in chip.sources.values())
    assert set(chip.confidence) <= set(figures)
    assert set(chip.confidence.values()) <= set(CONFIDENCES) - {"read"}


@CHIPS
def test_every_name_finds_it(chip: Chip) -> None:
    for name in (chip.name, *chip.aliases):
        for spelled in (name, name.lower(), name.upper(), name.replace("-", " "), name.replace("-", "_"), f" {name}"):
            assert catalog.chip(spelled) is chip
    assert catalog.chip(f"{chip.vendor} {chip.name}") is chip


@CHIPS
def test_a_chip_can_travel_between_processes(chip: Chip) -> None:
    assert pickle.loads(pickle.dumps(chip)) == chip


def test_no_name_means_two_chips() -> None:
    meant: dict[str, set[str]] = {}
    for chip in catalog.chips():
        for name in (chip.name, *chip.aliases):
            meant.setdefault(squash(name), set()).add(chip.name)
    assert [names for names in meant.values() if len(names) > 1] == []


def test_entries_found_in_the_text_are_those_that_yaml_finds() -> None:
    files = sorted((DATA / "chips").glob("*.yaml"))
    entries = [entry for file in files for entry in yaml.safe_load(file.read_text())]
    assert tuple(entry["name"] for entry in entries) == catalog.chip_names()
    spelled = {str(name) for entry in entries for name in (entry["name"], *entry.get("aliases", ()))}
    assert spelled == set(catalog.chip_spellings())


def test_formats_are_those_the_graph_knows() -> None:
    """But for four-bit numbers with shared scales, whose products have the rate of fp4, and for weights that techniques
    store: of a few bits, which are dequantized before they are multiplied, or sparse, in formats that have a rate."""
    assert set(FORMATS) == set(WIDTH) - {"mxfp4", "nvfp4"} - set(OF_TECHNIQUES)
    for name in OF_TECHNIQUES:
        assert GEMM_FORMATS[name if name in GEMM_FORMATS else f"{name}-weights"].compute_dtype in FORMATS


def test_the_measured_chips_kept_their_figures() -> None:
    """What the shipped profiles and the kept predictions stand on."""
    h100, h200, a100 = (catalog.chip(name) for name in ("H100", "H200", "A100"))
    for chip in (h100, h200):
        assert (chip.rate("bf16"), chip.rate("fp8"), chip.rate("tf32")) == (9.894e14, 1.9789e15, 4.947e14)
        up, out = chip.scaleup, chip.scaleout
        assert (up.name, up.bandwidth_bytes_s, up.latency_s) == ("NVLink4", 4.5e11, 8.6e-7)
        assert (out.name, out.bandwidth_bytes_s, out.latency_s) == ("InfiniBand NDR", 5e10, 5e-6)
        assert (chip.tdp_w, chip.boost_hz, chip.sm_count) == (700, 1.98e9, 132)
    assert (h100.memory_bytes, h100.memory_bandwidth_bytes_s, h100.l2_bytes) == (85520809984, 3.352e12, 52428800)
    assert (h200.memory_bytes, h200.memory_bandwidth_bytes_s, h200.l2_bytes) == (150754820096, 4.8e12, 62914560)
    assert (a100.memory_bytes, a100.memory_bandwidth_bytes_s, a100.rate("bf16")) == (85899345920, 2.039e12, 3.12e14)
    assert (h100.price_usd_h, h200.price_usd_h, a100.price_usd_h) == (3.29, 4.47, 2.85)


@pytest.mark.parametrize(
    ("name", "dtype", "instead", "half"),
    [("H100", "bf16", "bf16", "bf16"), ("V100", "bf16", "fp16", "fp16"), ("V100", "fp8", None, "fp16"),
     ("T4", "int8", "int8", "fp16"), ("M2-Ultra", "bf16", "fp16", "fp16"), ("TPU v4", "fp16", None, "bf16")],
)  # fmt: skip
def test_formats_a_chip_lacks(name: str, dtype: str, instead: str | None, half: str) -> None:
    chip = catalog.chip(name)
    assert (chip.instead_of(dtype), chip.half) == (instead, half)


def test_a_format_it_lacks_is_refused_by_name() -> None:
    with pytest.raises(UnknownNameError, match=r"number format for V100-SXM2-16GB 'bf16'. Near: fp16"):
        catalog.chip("V100").rate("bf16")


@pytest.mark.parametrize("name", ["H1000", "", "h 100 sxm 81", "\0", "H100:2", "nvidia"])
def test_an_unknown_chip_names_the_nearest(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        catalog.chip(name)
    expected = f"`gnomon chips` lists {len(catalog.chips())}; `gnomon chips new` describes your own."
    assert expected in str(caught.value)


def test_what_is_near_goes_by_every_spelling() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown chip 'H1000'. Near: H100-SXM-80GB, "):
        catalog.chip("H1000")
    with pytest.raises(UnknownNameError, match="Near: RTX-4090"):
        catalog.chip("RTX4091")


def test_nothing_is_read_at_import() -> None:
    code = "import sys, gnomon.catalog, gnomon.load; sys.exit(any(m in sys.modules for m in ('yaml', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_one_chip_does_not_cost_them_all() -> None:
    """In a process of its own, in which no chip was asked for before: the letters that are parsed."""
    code = (
        "import json, sys; from gnomon import catalog; load, parsed = json.loads, [];"
        "json.loads = lambda text: (parsed.append(text), load(text))[1];"
        "[catalog.chip(name) for name in ('H100', 'A100', 'H200')];"
        "entries = [text for text in parsed if text.startswith(b'{\"name\":')];"
        "print(len(parsed), len(entries), sum(map(len, entries)), 'yaml' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    times, entries, letters, yaml = told.split()
    assert yaml == "False"
    assert 3 <= int(entries) < int(times) < 30 and int(letters) < 20_000
