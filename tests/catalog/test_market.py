"""Prices and grids: of known chips, dated, found by place."""

from __future__ import annotations

import re
from statistics import median

import pytest

from gnomon import catalog
from gnomon.errors import InputError, UnknownNameError
from gnomon.spec import Chip


def test_prices_are_of_known_chips_and_dated() -> None:
    found = catalog.prices()
    assert len(found) > 200
    assert {price.chip for price in found} <= set(catalog.chip_names())
    for price in found:
        assert 0.02 < price.usd_h < 50
        assert price.kind in ("on-demand", "spot")
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", price.date)
        assert price.source
    keys = [(price.chip, price.cloud, price.region, price.kind) for price in found]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("chip", catalog.chips(), ids=lambda chip: chip.name)
def test_a_chips_own_price_is_the_median_of_the_clouds(chip: Chip) -> None:
    """Or says that it is not one: an order of magnitude, or what a card costs that is owned."""
    found = [price.usd_h for price in catalog.prices(chip.name) if (price.region, price.kind) == ("any", "on-demand")]
    assert bool(found) == ("median over clouds" in chip.sources["price_usd_h"])
    assert not found or chip.price_usd_h == pytest.approx(median(found), rel=0.05)


@pytest.mark.parametrize(
    ("chip", "cloud", "machine_usd_h", "chips"),
    [
        ("H100-SXM-80GB", "aws", 55.04, 8),  # p5.48xlarge in us-east-1
        ("A100-SXM-40GB", "aws", 21.957642, 8),  # p4d.24xlarge in us-east-1
        ("B200-SXM-180GB", "aws", 113.9328, 8),  # p6-b200.48xlarge
        ("L40S", "aws", 1.861, 1),  # g6e.xlarge in us-east-1
        ("H100-SXM-80GB", "azure", 98.32, 8),  # ND96isr_H100_v5
        ("A100-SXM-40GB", "azure", 27.197, 8),  # ND96asr_v4
        ("A100-SXM-80GB", "azure", 32.77, 8),  # ND96amsr_A100_v4
        ("H100-NVL-94GB", "azure", 6.98, 1),  # NC40ads_H100_v5
        ("A100-SXM-80GB", "gcp", 40.5504, 8),  # a2-ultragpu-8g in us-central1
        ("H100-SXM-80GB", "oci", 80, 8),  # BM.GPU.H100.8
    ],
)
def test_prices_are_of_one_chip_and_not_of_its_machine(chip: str, cloud: str, machine_usd_h: float, chips: int) -> None:
    """List prices of whole machines, as their clouds give them."""
    region = "us-east-1" if catalog.prices(chip, cloud=cloud, region="us-east-1") else ""
    assert catalog.price_at(chip, cloud, region).usd_h == pytest.approx(machine_usd_h / chips, rel=0.01)


def test_cheapest_first_and_cut() -> None:
    found = catalog.prices("H100-SXM-80GB")
    assert [price.usd_h for price in found] == sorted(price.usd_h for price in found)
    assert {price.cloud for price in catalog.prices("H100-SXM-80GB", cloud="aws")} == {"aws"}
    assert len({price.cloud for price in found}) > 10


def test_a_region_has_its_own_price_or_none() -> None:
    assert catalog.price_at("H100-SXM-80GB", "aws", "us-east-1").usd_h == 6.88
    assert catalog.price_at("H100-SXM-80GB", "aws").region == "any"
    assert catalog.price_at("H100-SXM-80GB", "aws", spot=True).usd_h < 2
    with pytest.raises(
        InputError, match=r"at aws in ap-south-2 is known. Known: us-east-1. Without a region it is \$7"
    ):
        catalog.price_at("H100-SXM-80GB", "aws", "ap-south-2")


def test_no_such_offer() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown cloud 'awz'. Near: aws"):
        catalog.price_at("H100-SXM-80GB", "awz")
    with pytest.raises(InputError, match=r"no on-demand price of MI300X at aws is known. Known: runpod"):
        catalog.price_at("MI300X", "aws")
    with pytest.raises(InputError, match="Give the price as price_usd_h"):
        catalog.price_at("MI100", "aws")


@pytest.mark.parametrize("name", catalog.grid_names())
def test_grids_are_sane(name: str) -> None:
    grid = catalog.grid(name)
    assert 1 < grid.g_co2_kwh < 1000
    assert "(20" in grid.source
    assert grid.place
    for spelling in (name, *grid.aliases):
        assert catalog.grid(spelling.upper()) is grid


def test_places() -> None:
    assert catalog.grid("us-east-1").name == "us-virginia"
    assert catalog.grid("us-east1").name == "us-south-carolina"
    assert catalog.grid("europe-west9").g_co2_kwh == 16.3
    assert catalog.grid("France").g_co2_kwh == catalog.grid("FR").g_co2_kwh == 56
    assert catalog.grid("no").place == "Norway"
    with pytest.raises(UnknownNameError, match=r"unknown grid 'us-east-9'. Near: us-east-1"):
        catalog.grid("us-east-9")
