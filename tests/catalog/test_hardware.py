"""One battery for every chip: figures in a sane range, each with a source, each name found."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from gnomon import catalog
from gnomon.errors import UnknownNameError
from gnomon.spec import Chip

CHIPS = pytest.mark.parametrize("chip", catalog.chips(), ids=lambda chip: chip.name)


@CHIPS
def test_figures_are_in_a_sane_range(chip: Chip) -> None:
    assert 1e9 < chip.memory_bytes < 1e12
    assert 1e11 < chip.memory_bandwidth_bytes_s < 1e14
    assert 1e6 < chip.l2_bytes < 1e9
    assert 0 < chip.idle_w < chip.tdp_w < 3000
    assert 5e8 < chip.boost_hz < 4e9
    assert isinstance(chip.sm_count, int)
    assert chip.sm_count > 0
    assert chip.scaleup_size >= 1
    assert chip.scaleup.bandwidth_bytes_s >= chip.scaleout.bandwidth_bytes_s
    assert 0 < chip.scaleup.latency_s <= chip.scaleout.latency_s < 1e-3
    assert 0 < chip.price_usd_h < 100
    assert chip.rate("bf16") >= chip.rate("fp32")


@CHIPS
def test_every_figure_has_a_source_and_a_date(chip: Chip) -> None:
    figures = [f"rates_flops.{dtype}" for dtype in chip.rates_flops]
    figures += [f"{link}.{part}" for link in ("scaleup", "scaleout") for part in ("bandwidth_bytes_s", "latency_s")]
    figures += ["memory_bytes", "memory_bandwidth_bytes_s", "l2_bytes", "sm_count", "boost_hz", "tdp_w", "idle_w"]
    figures += ["scaleup_size", "price_usd_h"]
    assert set(figures) == set(chip.sources)
    assert all("(20" in source for source in chip.sources.values())


@CHIPS
def test_every_name_finds_it(chip: Chip) -> None:
    for name in (chip.name, *chip.aliases):
        for spelled in (name, name.lower(), name.upper(), name.replace("-", " "), f" {name}"):
            assert catalog.chip(spelled) is chip


@CHIPS
def test_a_chip_can_travel_between_processes(chip: Chip) -> None:
    assert pickle.loads(pickle.dumps(chip)) == chip


def test_no_name_means_two_chips() -> None:
    names = [alias.casefold() for chip in catalog.chips() for alias in {chip.name, *chip.aliases}]
    assert len(names) == len(set(names))


def test_what_the_driver_calls_it() -> None:
    assert catalog.chip("NVIDIA H200").name == "H200-SXM-141GB"
    assert catalog.chip("NVIDIA H100 80GB HBM3").name == "H100-SXM-80GB"
    assert catalog.chip("NVIDIA A100-SXM4-80GB").name == "A100-SXM-80GB"


@pytest.mark.parametrize("name", ["A100", "A100-80GB", "A100-SXM 80GB", "a100_sxm4_80gb", "NVIDIA A100 SXM4 80GB"])
def test_usual_spellings(name: str) -> None:
    assert catalog.chip(name).memory_bytes == 81920 * 2**20


@pytest.mark.parametrize("name", ["H1000", "", "h 100 sxm 81", "\0", "H100:2"])
def test_an_unknown_chip_names_the_nearest(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        catalog.chip(name)
    assert f"`gnomon chips` lists {len(catalog.chips())}." in str(caught.value)


def test_nothing_is_read_at_import() -> None:
    code = "import sys, gnomon.catalog, gnomon.load; sys.exit(any(m in sys.modules for m in ('yaml', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
